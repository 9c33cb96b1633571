"""Full text queries of pylance.

These are only the query classes: trilake keeps full text indices but cannot search them, so scans reject these queries.

>>> both = MatchQuery("lake", "title") & PhraseQuery("open table", "body")
>>> both.query_type(), [(occur.name, query.column) for occur, query in both.queries]
(<FullTextQueryType.BOOLEAN: 'boolean'>, [('MUST', 'title'), ('MUST', 'body')])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum, StrEnum
from typing import ClassVar

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


class FullTextQuery:
    """A full text query; combine two with ``&`` or ``|``."""

    _type: ClassVar[FullTextQueryType]

    def query_type(self) -> FullTextQueryType:
        return self._type

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

    _type = FullTextQueryType.MATCH


@dataclass(frozen=True)
class PhraseQuery(FullTextQuery):
    """Match a phrase in a column, with at most ``slop`` other words in between."""

    query: str
    column: str
    _: KW_ONLY
    slop: int = 0
    document_granularity: DocumentGranularity | None = None

    _type = FullTextQueryType.MATCH_PHRASE


@dataclass(frozen=True)
class BoostQuery(FullTextQuery):
    """Match ``positive``; rows that also match ``negative`` get a lower score."""

    positive: FullTextQuery
    negative: FullTextQuery
    _: KW_ONLY
    negative_boost: float = 0.5

    _type = FullTextQueryType.BOOST


@dataclass(frozen=True)
class _ColumnsQuery(FullTextQuery):
    query: str
    columns: Sequence[str]
    _: KW_ONLY
    boosts: Sequence[float] | None = None
    operator: FullTextOperator = FullTextOperator.OR

    def __post_init__(self) -> None:
        if self.boosts is not None and len(self.boosts) != len(self.columns):
            raise InvalidArgumentError(
                f"expected {len(self.columns)} boosts, got {len(self.boosts)}", help="pass one for each column"
            )


class MultiMatchQuery(_ColumnsQuery):
    """Match words in several columns separately; ``boosts`` has a factor for each column."""

    _type = FullTextQueryType.MULTI_MATCH


class CombinedFieldsQuery(_ColumnsQuery):
    """Match words in several columns as one; ``boosts`` has a factor for each column."""

    _type = FullTextQueryType.COMBINED_FIELDS


@dataclass(frozen=True)
class BooleanQuery(FullTextQuery):
    """Combine clauses; each is required, optional or excluded."""

    queries: Sequence[tuple[Occur, FullTextQuery]]

    _type = FullTextQueryType.BOOLEAN


@dataclass
class MinHashQuery:
    """Match rows with words similar to those of ``text``."""

    text: str
    column: str
