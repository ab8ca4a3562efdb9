"""Caches of Gradle and Maven: both read a second one, so the session has its own and the user's is read besides."""

from yarrow.policy.sandbox.caches.plan import (
    SANDBOX_DIRECTORY,
    CacheContext,
    CacheLinks,
    CachePlan,
    SessionCacheDirectory,
)

MODULES = "caches/modules-2"
WRAPPER_DISTRIBUTIONS = "wrapper/dists"
"""Directory of the versions that the wrappers installed; they write a lock beside each."""
OF_WRAPPER = r"[^/]+(?:/[^/]+)?"
"""Directories there that wrappers write to."""


def gradle_plan(context: CacheContext) -> CachePlan:
    """Return how Gradle finds modules; versions before 6.2 read no second cache."""
    home = context.path_variable("GRADLE_USER_HOME") or f"{context.home}/.gradle"
    if context.in_workspace(home):
        return CachePlan()
    place = context.home_path(home) or f"{context.sandbox_home}/.gradle"
    # Java takes the home from the list of users, whatever HOME is.
    is_found = place == (context.path_variable("GRADLE_USER_HOME") or f"{context.account}/.gradle")
    plan = CachePlan(environment={} if is_found else {"GRADLE_USER_HOME": place})
    if source := context.user_directory(f"{home}/{MODULES}"):
        seen = f"{SANDBOX_DIRECTORY}/gradle"
        told = {} if context.environment.get("GRADLE_RO_DEP_CACHE") else {"GRADLE_RO_DEP_CACHE": seen}
        plan = plan.merge(CachePlan(((source, f"{seen}/modules-2"),), environment=told))
    return plan.merge(
        _wrapper_plan(
            "gradle-wrapper",
            context,
            installed=f"{home}/{WRAPPER_DISTRIBUTIONS}",
            target=f"{place}/{WRAPPER_DISTRIBUTIONS}",
        )
    )


def maven_plan(context: CacheContext) -> CachePlan:
    """Return how Maven finds artifacts; versions before 3.9 ignore MAVEN_ARGS and read no second cache."""
    home = f"{context.home}/.m2"
    plan = CachePlan()
    if context.account != context.sandbox_home:
        plan = plan.merge(_option_plan("MAVEN_OPTS", f"-Duser.home={context.sandbox_home}", context))
    if source := context.user_directory(f"{home}/repository"):
        seen = f"{SANDBOX_DIRECTORY}/maven"
        tail = _option_plan("MAVEN_ARGS", f"-Dmaven.repo.local.tail={seen}", context)
        plan = plan.merge(tail).merge(CachePlan(((source, seen),)))
    target = f"{context.sandbox_home}/.m2/{WRAPPER_DISTRIBUTIONS}"
    return plan.merge(
        _wrapper_plan("maven-wrapper", context, installed=f"{home}/{WRAPPER_DISTRIBUTIONS}", target=target)
    )


def _option_plan(name: str, word: str, context: CacheContext) -> CachePlan:
    """Return a plan that adds a word to the options in a variable; what the user says of the same comes last."""
    return CachePlan(environment={name: f"{word} {context.environment.get(name, '')}".rstrip()})


def _wrapper_plan(name: str, context: CacheContext, *, installed: str, target: str) -> CachePlan:
    source = context.user_directory(installed)
    if not source:
        return CachePlan()
    seen = f"{SANDBOX_DIRECTORY}/{name}"
    return CachePlan(
        ((source, seen),),
        (SessionCacheDirectory(name, target, (CacheLinks(source, seen, directory_pattern=OF_WRAPPER),)),),
    )
