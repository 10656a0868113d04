"""The error of orders that are used without the slab whose content decides."""

from fieldslab.schemas.errors import UsageError


def make_unattached_error(unknown: str) -> UsageError:
    """Make the error for `rows` of an order that has to be attached; `unknown` is what it lacks."""
    return UsageError(
        f"the order is not attached to a slab, so {unknown} are unknown",
        hint="Write order.attach(slab).rows(...).",
    )
