"""Full text queries of pylance.

These are only the query classes: trilake keeps full text indices but cannot search them, so scans reject these queries.

>>> both = MatchQuery("lake", "title") & PhraseQuery("open table", "body")
>>> both.query_type(), [(occur.name, query.column) for occur, query in both.queries]
(<FullTextQueryType.BOOLEAN: 'boolean'>, [('MUST', 'title'), ('MUST', 'body')])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum, StrEnum

from trilake.errors import InvalidArgumentError

__all__ = [
    "BooleanQuery",
    "BoostQuery",
    "CombinedFieldsQuery",
    "DocumentGranularity",
    "FullTextOperator",
    "FullTextQuery",
    "FullTextQueryType",
    "MatchQuery",
    "MinHashQuery",
    "MultiMatchQuery",
    "Occur",
    "PhraseQuery",
]


class FullTextQueryType(Enum):
    """Kinds of full text queries."""

    MATCH = "match"
    MATCH_PHRASE = "match_phrase"
    BOOST = "boost"
    MULTI_MATCH = "multi_match"
    COMBINED_FIELDS = "combined_fields"
    BOOLEAN = "boolean"


class FullTextOperator(Enum):
    """Whether all words or any of them must match."""

    AND = "AND"
    OR = "OR"


class DocumentGranularity(StrEnum):
    """Whether a document is a row or a list item."""

    ROW = "row"
    LIST_ELEMENT = "list_element"


class Occur(Enum):
    """How a clause of a boolean query counts."""

    SHOULD = "SHOULD"
    MUST = "MUST"
    MUST_NOT = "MUST_NOT"


class FullTextQuery(ABC):
    """A full text query; combine two with ``&`` or ``|``."""

    @abstractmethod
    def query_type(self) -> FullTextQueryType:
        """Kind of the query."""

    def __and__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.MUST, self), (Occur.MUST, other)])

    def __or__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.SHOULD, self), (Occur.SHOULD, other)])


@dataclass(frozen=True)
class MatchQuery(FullTextQuery):
    """Match words in a column.

    Parameters
    ----------
    query: words to search for.
    column: column to search.
    boost: factor of the score.
    fuzziness: maximum edit distance; ``None`` depends on the length of the word.
    max_expansions: maximum number of similar words.
    operator: whether all words must match.
    prefix_length: number of leading letters that must match exactly.
    document_granularity: whether a document is a row or a list item.
    """

    query: str
    column: str
    _: KW_ONLY
    boost: float = 1.0
    fuzziness: int | None = 0
    max_expansions: int = 50
    operator: FullTextOperator = FullTextOperator.OR
    prefix_length: int = 0
    document_granularity: DocumentGranularity | None = None

    def query_type(self) -> FullTextQueryType:
        return FullTextQueryType.MATCH


@dataclass(frozen=True)
class PhraseQuery(FullTextQuery):
    """Match a phrase in a column, with at most ``slop`` other words in between."""

    query: str
    column: str
    _: KW_ONLY
    slop: int = 0
    document_granularity: DocumentGranularity | None = None

    def query_type(self) -> FullTextQueryType:
        return FullTextQueryType.MATCH_PHRASE


@dataclass(frozen=True)
class BoostQuery(FullTextQuery):
    """Match ``positive``; rows that also match ``negative`` get a lower score."""

    positive: FullTextQuery
    negative: FullTextQuery
    _: KW_ONLY
    negative_boost: float = 0.5

    def query_type(self) -> FullTextQueryType:
        return FullTextQueryType.BOOST


@dataclass(frozen=True)
class MultiMatchQuery(FullTextQuery):
    """Match words in several columns separately; ``boosts`` has a factor for each column."""

    query: str
    columns: Sequence[str]
    _: KW_ONLY
    boosts: Sequence[float] | None = None
    operator: FullTextOperator = FullTextOperator.OR

    def __post_init__(self) -> None:
        _check_boosts(self.columns, self.boosts)

    def query_type(self) -> FullTextQueryType:
        return FullTextQueryType.MULTI_MATCH


@dataclass(frozen=True)
class CombinedFieldsQuery(FullTextQuery):
    """Match words in several columns as one; ``boosts`` has a factor for each column."""

    query: str
    columns: Sequence[str]
    _: KW_ONLY
    boosts: Sequence[float] | None = None
    operator: FullTextOperator = FullTextOperator.OR

    def __post_init__(self) -> None:
        _check_boosts(self.columns, self.boosts)

    def query_type(self) -> FullTextQueryType:
        return FullTextQueryType.COMBINED_FIELDS


@dataclass(frozen=True)
class BooleanQuery(FullTextQuery):
    """Combine clauses; each is required, optional or excluded."""

    queries: Sequence[tuple[Occur, FullTextQuery]]

    def query_type(self) -> FullTextQueryType:
        return FullTextQueryType.BOOLEAN


@dataclass
class MinHashQuery:
    """Match rows with words similar to those of ``text``."""

    text: str
    column: str


def _check_boosts(columns: Sequence[str], boosts: Sequence[float] | None) -> None:
    if boosts is not None and len(boosts) != len(columns):
        raise InvalidArgumentError(
            f"expected {len(columns)} boosts, got {len(boosts)}", help="pass one for each column"
        )
