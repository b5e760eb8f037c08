"""Runs the runtime's own compiler under one deadline, with retries by class of failure.

Invariant: what it calls compiled came from one attempt that began from a clean output and ended well; a failure
that would only come again is never tried twice, not even when the container is restarted, because one more try
can cost hours of a machine.

Of the standard library alone, for Python 3.11 to 3.14, and never of the rest of ours: `fetch` packs this package
into one file, which runs in the runtime's container, whose image is not ours.
"""
