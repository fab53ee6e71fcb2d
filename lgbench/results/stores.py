"""The store behind an address, where the library that reaches it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lgbench.errors import UsageError
from lgbench.results.addresses import Address

if TYPE_CHECKING:
    from lgbench.results.objects import Store


def store_of(address: Address) -> Store:
    """The store of a folder in a bucket. Raises UsageError where the library that reaches it is not installed."""
    try:
        from lgbench.results.objects import Store
    except ModuleNotFoundError as error:
        needs = f"obstore is not installed, which {address.scheme}:// needs"
        raise UsageError(f"{needs}: pip install 'lgbench[storage]'") from error
    return Store(address)
