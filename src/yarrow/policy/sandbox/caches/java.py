"""Caches of Gradle and Maven: both read a second one, so the session has its own and the user's is read besides."""

from yarrow.policy.sandbox.caches.cache import SEEN, Links, Machine, Own, Plan

MODULES = "caches/modules-2"
INSTALLED = "wrapper/dists"
"""Directory of the versions that the wrappers installed; they write a lock beside each."""
OF_WRAPPER = r"[^/]+(?:/[^/]+)?"
"""Directories there that wrappers write to."""


def gradle(machine: Machine) -> Plan:
    """Return how Gradle finds modules; versions before 6.2 read no second cache."""
    home = machine.named("GRADLE_USER_HOME") or f"{machine.home}/.gradle"
    if machine.in_workspace(home):
        return Plan()
    place = machine.at_home(home) or f"{machine.inside}/.gradle"
    # Java takes the home from the list of users, whatever HOME is.
    is_found = place == (machine.named("GRADLE_USER_HOME") or f"{machine.account}/.gradle")
    plan = Plan(environment={} if is_found else {"GRADLE_USER_HOME": place})
    if source := machine.of_user(f"{home}/{MODULES}"):
        seen = f"{SEEN}/gradle"
        told = {} if machine.environment.get("GRADLE_RO_DEP_CACHE") else {"GRADLE_RO_DEP_CACHE": seen}
        plan = plan.joined(Plan(((source, f"{seen}/modules-2"),), environment=told))
    return plan.joined(
        _wrapper("gradle-wrapper", machine, installed=f"{home}/{INSTALLED}", target=f"{place}/{INSTALLED}")
    )


def maven(machine: Machine) -> Plan:
    """Return how Maven finds artifacts; versions before 3.9 ignore MAVEN_ARGS and read no second cache."""
    home = f"{machine.home}/.m2"
    plan = Plan()
    if machine.account != machine.inside:
        plan = plan.joined(_added("MAVEN_OPTS", f"-Duser.home={machine.inside}", machine))
    if source := machine.of_user(f"{home}/repository"):
        seen = f"{SEEN}/maven"
        tail = _added("MAVEN_ARGS", f"-Dmaven.repo.local.tail={seen}", machine)
        plan = plan.joined(tail).joined(Plan(((source, seen),)))
    target = f"{machine.inside}/.m2/{INSTALLED}"
    return plan.joined(_wrapper("maven-wrapper", machine, installed=f"{home}/{INSTALLED}", target=target))


def _added(name: str, word: str, machine: Machine) -> Plan:
    """Return a plan that adds a word to the options in a variable; what the user says of the same comes last."""
    return Plan(environment={name: f"{word} {machine.environment.get(name, '')}".rstrip()})


def _wrapper(name: str, machine: Machine, *, installed: str, target: str) -> Plan:
    source = machine.of_user(installed)
    if not source:
        return Plan()
    seen = f"{SEEN}/{name}"
    return Plan(((source, seen),), (Own(name, target, (Links(source, seen, branches=OF_WRAPPER),)),))
