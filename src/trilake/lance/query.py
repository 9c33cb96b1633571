"""Queries of full text, by the names that users of the format know.

They say what to search for.  Indices of full text are kept, and not used here: a scan that gets a query is refused.

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
    """Kinds of queries."""

    MATCH = "match"
    MATCH_PHRASE = "match_phrase"
    BOOST = "boost"
    MULTI_MATCH = "multi_match"
    COMBINED_FIELDS = "combined_fields"
    BOOLEAN = "boolean"


class FullTextOperator(Enum):
    """Whether all words of a query must be there, or one of them."""

    AND = "AND"
    OR = "OR"


class DocumentGranularity(StrEnum):
    """What counts as a document: a row, or an item of its list."""

    ROW = "row"
    LIST_ELEMENT = "list_element"


class Occur(Enum):
    """How a part of a boolean query counts."""

    SHOULD = "SHOULD"
    MUST = "MUST"
    MUST_NOT = "MUST_NOT"


class FullTextQuery(ABC):
    """What to search for; ``&`` and ``|`` join two."""

    @abstractmethod
    def query_type(self) -> FullTextQueryType:
        """The kind of the query."""

    def __and__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.MUST, self), (Occur.MUST, other)])

    def __or__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.SHOULD, self), (Occur.SHOULD, other)])


@dataclass(frozen=True)
class MatchQuery(FullTextQuery):
    """Words of a column.

    Parameters
    ----------
    query: the words.
    column: to look into.
    boost: by which the score counts more.
    fuzziness: letters by which a word may differ; ``None`` for as many as suit its length.
    max_expansions: similar words that are looked for, at most.
    operator: whether all words must be there.
    prefix_length: letters at the beginning that may not differ.
    document_granularity: what counts as a document.
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
    """Words that follow one another in a column, with at most ``slop`` others between."""

    query: str
    column: str
    _: KW_ONLY
    slop: int = 0
    document_granularity: DocumentGranularity | None = None

    def query_type(self) -> FullTextQueryType:
        return FullTextQueryType.MATCH_PHRASE


@dataclass(frozen=True)
class BoostQuery(FullTextQuery):
    """What ``positive`` finds; what ``negative`` finds among it counts less."""

    positive: FullTextQuery
    negative: FullTextQuery
    _: KW_ONLY
    negative_boost: float = 0.5

    def query_type(self) -> FullTextQueryType:
        return FullTextQueryType.BOOST


@dataclass(frozen=True)
class MultiMatchQuery(FullTextQuery):
    """Words of several columns, each of which is searched on its own; ``boosts`` has a number for each column."""

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
    """Words of several columns, which are searched as one; ``boosts`` has a number for each column."""

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
    """Queries, and how each counts."""

    queries: Sequence[tuple[Occur, FullTextQuery]]

    def query_type(self) -> FullTextQueryType:
        return FullTextQueryType.BOOLEAN


@dataclass
class MinHashQuery:
    """Rows whose words are about those of ``text``."""

    text: str
    column: str


def _check_boosts(columns: Sequence[str], boosts: Sequence[float] | None) -> None:
    if boosts is not None and len(boosts) != len(columns):
        raise InvalidArgumentError(f"{len(columns)} columns have {len(boosts)} boosts", help="give one for each column")
