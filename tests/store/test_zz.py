import sys
import collections

sys.path.insert(0, "/tmp")
import fake

import tests.store.test_model as tm
from monarq.errors import MonarqError
from tests.store.comparison import SideBySide

C = collections.Counter()


async def open_store(address, clock, schema):
    return fake.Fake(clock)


tm.open_store = open_store
orig = SideBySide._same


def same(self, what, got, expected, without=""):
    for e in expected:
        w = what.split(" ")[0]
        if isinstance(e, MonarqError):
            C[w, e.code, getattr(getattr(e, "cause", None), "code", "")] += 1
        elif w in ("push", "ack", "renew", "transaction"):
            C[w, "ok"] += 1
        elif w == "pop":
            C[w, "got" if e.messages else "none"] += 1
    C["letters"] += what == "dead letters" and len(expected)
    return orig(self, what, got, expected, without)


SideBySide._same = same
orig2 = SideBySide._same_codes


def sc(self, call, about, got, expected):
    C[call, expected.code if isinstance(expected, MonarqError) else "ok"] += 1


SideBySide._same_codes = sc


def test_fake(tmp_path_factory):
    tm.test_random_histories_agree_with_the_reference_model("memory", tmp_path_factory, {})
    for k, v in sorted(C.items(), key=str):
        print(k, v)
