"""What a checkout holds beside `tandem`, and what an installed package has in its place.

Invariant: each of these files has one source, in the checkout. The build of a package writes what
an installed Tandem reads of them (setup.py,
docs/decisions/0052-an-installed-package-needs-no-checkout.md), and no checkout holds what it
writes. The build has setuptools and no other library, so this module needs none.
"""

from __future__ import annotations

from pathlib import Path

from tandem.errors import InputError

# of the checkout, or the folder that holds the installed `tandem`
ROOT = Path(__file__).parent.parent.parent
# what `tandem simulate` and `tandem plan` know where nobody has written an experiment
BUILT_IN_EXPERIMENT = "post"
CHECKOUT_EXPERIMENT = "experiments/post.yaml"
PACKAGE_EXPERIMENT = "tandem/declarations/data/experiments/post.yaml"
PACKAGE_IMAGES = (
    "tandem/declarations/data/images.json"  # tag and base of each image, by the image's name
)


def is_checkout(root: Path = ROOT) -> bool:
    """Return whether a checkout lies around `tandem`."""
    return not (root / PACKAGE_IMAGES).is_file()


def find_built_in_experiment(root: Path = ROOT) -> Path:
    """Return the file of the experiment that comes with Tandem."""
    return root / (CHECKOUT_EXPERIMENT if is_checkout(root) else PACKAGE_EXPERIMENT)


def require_checkout(command: str, root: Path = ROOT) -> None:
    """Refuse what an installed package cannot do.

    Args:
        command: as its user wrote it.
        root: of the checkout, or the folder that holds the installed `tandem`.

    Raises:
        InputError: this is an installed package.
    """
    if not is_checkout(root):
        change = "clone it, run `make setup`, and run the command there"
        raise InputError(f"{command} needs a checkout of the repository", change=change)
