"""The driver runs the runtime's own compiler under one deadline and retries by class of failure.

Invariant: an output that is called compiled came from one attempt that began from a clean output
and ended well; a failure that would repeat is never tried twice, not even after a restart of the
container, because one more try can cost hours of a machine.

Standard library only, for Python 3.11 to 3.14, and no other code of this repository: `fetch` packs
this package into one file, which runs in the runtime's container, whose image is not ours.
"""
