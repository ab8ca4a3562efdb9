"""A permission that is always given."""

from msgspec import Struct

from yarrow.tool.base import Tool, ToolContext, ToolFailed


async def permit_all(tool: Tool, arguments: Struct, context: ToolContext) -> ToolContext | ToolFailed:
    return context
