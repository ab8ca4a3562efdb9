"""Makes the images of a prompt fit what the backends are known to take, before anything of the prompt is kept."""

from collections.abc import Sequence

from yarrow.errors import Code, InvalidArgument, YarrowError
from yarrow.provider.base import ProviderInfo
from yarrow.tool.worker_thread import run_in_thread
from yarrow.v1 import agent_pb2 as pb

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def fit_images(images: Sequence[pb.Image]) -> list[pb.Image]:
    """Return the images within the limits, under the media types of their content; one after the other, in a thread.

    Raises `InvalidArgument` naming the first image that has an unknown type, is none, or is too large.
    """
    for index, image in enumerate(images):
        if image.media_type not in IMAGE_TYPES:
            known = ", ".join(sorted(IMAGE_TYPES))
            raise InvalidArgument(f"images[{index}].media_type", f"{image.media_type!r} is none of {known}")
    return [await _fit_image(index, image.data) for index, image in enumerate(images)]


def check_image_support(images: Sequence[pb.Image], info: ProviderInfo) -> None:
    """Raise `YarrowError` (UNSUPPORTED_FEATURE) when there are images and the model takes none."""
    if images and not info.has_images:
        raise YarrowError(
            f"the model {info.model!r} of {info.name!r} takes no images: choose another model or leave them out",
            code=Code.UNSUPPORTED_FEATURE,
        )


async def _fit_image(index: int, data: bytes) -> pb.Image:
    from yarrow.imaging.fit import Unfit, fit  # few prompts have images

    result = await run_in_thread(lambda _: fit(data))
    if isinstance(result, Unfit):
        raise InvalidArgument(f"images[{index}]", result.text)
    return pb.Image(media_type=result.media_type, data=result.data)
