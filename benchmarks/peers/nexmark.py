"""Events of NEXMark's auction site, made column by column after the published generator (Apache Beam's, which others follow).

Of fifty events one is a new person, three are new auctions and 46 are bids, in this order. Half of the bids are for the one auction that is hot at the
moment, three quarters come from one bidder and three quarters of the auctions are from one seller; the others are spread over the last 100 auctions and the
last 1,000 people. Prices are 10 to the power of a number between 0 and 6, in cents.

Different from it: all kinds are in one table, with nulls in the columns of the others; columns that none of the queries reads (address, card, description,
padding to a size) are left out; and times are even milliseconds, so that no two bids are exactly as far apart as the gap of a session, where systems disagree.
"""

from __future__ import annotations

import numpy as np
import polars as pl

PERSON, AUCTION, BID = 0, 1, 2
PERSONS, AUCTIONS, TOTAL = 1, 3, 50
"""Of so many events."""
EVENTS_PER_S = 10_000
HOT_BIDS, HOT_BIDDERS, HOT_SELLERS = 2, 4, 4
"""One of so many is not for, or from, the hot one."""
HOT_EVERY = 100
"""Ids from one hot auction, bidder or seller to the next."""
IN_FLIGHT, ACTIVE, LEAD = 100, 1_000, 10
"""Auctions and people to choose from, and ids that do not exist yet."""
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
BEGIN = 1_700_000_000_000
"""Milliseconds."""
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")


def events(first: int, count: int, seed: int = 0) -> pl.DataFrame:
    """Make events from number `first` on; the same for the same numbers and seed."""
    rng = np.random.default_rng((seed, first))
    number = np.arange(first, first + count, dtype=np.int64)
    place = number % TOTAL
    kind = np.where(place < PERSONS, PERSON, np.where(place < PERSONS + AUCTIONS, AUCTION, BID)).astype(np.int8)
    last_person = number // TOTAL
    last_auction = number // TOTAL * AUCTIONS + np.clip(place - PERSONS, -1, AUCTIONS - 1)
    is_person, is_auction, is_bid = (kind == k for k in (PERSON, AUCTION, BID))
    hot_person = last_person // HOT_EVERY * HOT_EVERY
    seller = np.where(_hot(rng, HOT_SELLERS, count), hot_person, _person(rng, last_person))
    bidder = np.where(_hot(rng, HOT_BIDDERS, count), hot_person + 1, _person(rng, last_person))
    hot_auction = np.maximum(last_auction, 0) // HOT_EVERY * HOT_EVERY
    auction = np.where(_hot(rng, HOT_BIDS, count), hot_auction, _auction(rng, last_auction))
    price = np.rint(10 ** (rng.random(count) * 6) * 100).astype(np.int64)
    category = rng.integers(0, CATEGORIES, count) + FIRST_CATEGORY
    names = pl.Series([f"{a} {b}" for a in _FIRST_NAMES for b in _LAST_NAMES])
    name = names.gather(rng.integers(0, len(names), count))
    even = number * 1_000 // EVENTS_PER_S // 2 * 2
    return pl.DataFrame({"kind": kind}).with_columns(
        _of(is_person, FIRST_ID + last_person).alias("person_id"),
        pl.when(pl.Series(is_person)).then(name).alias("person_name"),
        _of(is_auction, FIRST_ID + last_auction).alias("auction_id"),
        _of(is_auction, FIRST_ID + seller).alias("auction_seller"),
        _of(is_auction, category).alias("auction_category"),
        _of(is_bid, FIRST_ID + auction).alias("bid_auction"),
        _of(is_bid, FIRST_ID + bidder).alias("bid_bidder"),
        _of(is_bid, price).alias("bid_price"),
        pl.Series((BEGIN + even) * 1_000).cast(pl.Datetime("us", "UTC")).alias("ts"),
    )


def _of(mask: np.ndarray, values: np.ndarray) -> pl.Expr:
    return pl.when(pl.Series(mask)).then(pl.Series(values))


def _hot(rng: np.random.Generator, one_of: int, count: int) -> np.ndarray:
    return rng.integers(0, one_of, count) > 0


def _person(rng: np.random.Generator, last: np.ndarray) -> np.ndarray:
    active = np.minimum(last + 1, ACTIVE)
    return last + 1 - active + rng.integers(0, active + LEAD)


def _auction(rng: np.random.Generator, last: np.ndarray) -> np.ndarray:
    oldest = np.maximum(last - IN_FLIGHT, 0)
    return oldest + rng.integers(0, np.maximum(last, 0) - oldest + 1 + LEAD)
