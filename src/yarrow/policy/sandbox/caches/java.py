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


def gradle_plan(machine: CacheContext) -> CachePlan:
    """Return how Gradle finds modules; versions before 6.2 read no second cache."""
    home = machine.named("GRADLE_USER_HOME") or f"{machine.home}/.gradle"
    if machine.in_workspace(home):
        return CachePlan()
    place = machine.at_home(home) or f"{machine.inside}/.gradle"
    # Java takes the home from the list of users, whatever HOME is.
    is_found = place == (machine.named("GRADLE_USER_HOME") or f"{machine.account}/.gradle")
    plan = CachePlan(environment={} if is_found else {"GRADLE_USER_HOME": place})
    if source := machine.of_user(f"{home}/{MODULES}"):
        seen = f"{SANDBOX_DIRECTORY}/gradle"
        told = {} if machine.environment.get("GRADLE_RO_DEP_CACHE") else {"GRADLE_RO_DEP_CACHE": seen}
        plan = plan.joined(CachePlan(((source, f"{seen}/modules-2"),), environment=told))
    return plan.joined(
        _wrapper_plan(
            "gradle-wrapper",
            machine,
            installed=f"{home}/{WRAPPER_DISTRIBUTIONS}",
            target=f"{place}/{WRAPPER_DISTRIBUTIONS}",
        )
    )


def maven_plan(machine: CacheContext) -> CachePlan:
    """Return how Maven finds artifacts; versions before 3.9 ignore MAVEN_ARGS and read no second cache."""
    home = f"{machine.home}/.m2"
    plan = CachePlan()
    if machine.account != machine.inside:
        plan = plan.joined(_option_plan("MAVEN_OPTS", f"-Duser.home={machine.inside}", machine))
    if source := machine.of_user(f"{home}/repository"):
        seen = f"{SANDBOX_DIRECTORY}/maven"
        tail = _option_plan("MAVEN_ARGS", f"-Dmaven.repo.local.tail={seen}", machine)
        plan = plan.joined(tail).joined(CachePlan(((source, seen),)))
    target = f"{machine.inside}/.m2/{WRAPPER_DISTRIBUTIONS}"
    return plan.joined(
        _wrapper_plan("maven-wrapper", machine, installed=f"{home}/{WRAPPER_DISTRIBUTIONS}", target=target)
    )


def _option_plan(name: str, word: str, machine: CacheContext) -> CachePlan:
    """Return a plan that adds a word to the options in a variable; what the user says of the same comes last."""
    return CachePlan(environment={name: f"{word} {machine.environment.get(name, '')}".rstrip()})


def _wrapper_plan(name: str, machine: CacheContext, *, installed: str, target: str) -> CachePlan:
    source = machine.of_user(installed)
    if not source:
        return CachePlan()
    seen = f"{SANDBOX_DIRECTORY}/{name}"
    return CachePlan(
        ((source, seen),), (SessionCacheDirectory(name, target, (CacheLinks(source, seen, branches=OF_WRAPPER),)),)
    )
