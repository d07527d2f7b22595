"""The rules of `decider.TABLE`, a chapter each. A rule that writes nothing says *not now*: its command stays where it is."""
