import sys; sys.path.insert(0,"scripts")
import mutants
for m in mutants.MUTANTS[-len(mutants.POLICY_MUTANTS):]:
    try: s = mutants.survives(m)
    except SystemExit as e: s = e
    print("SURVIVED" if s is True else "caught" if s is False else s, m.file, m.what, flush=True)
