"""The checks that a run passes or fails: columns in, outcomes out.

`registry` lists them, `base.Check` says what each has, and every other module is one kind of check.
"""
