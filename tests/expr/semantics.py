"""Rows and filters on which trilake and Spark must agree; ``spark_answers.json`` holds what Spark 4 answered."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

NAN, INF = float("nan"), float("inf")


def _ts(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def _ntz(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


#: One list a column; row 0 is all null.
ROWS = pa.table(
    {
        "id": pa.array(range(12), pa.int32()),
        "i8": pa.array([None, 0, 1, -1, 127, -128, 5, 7, 100, 3, 2, -7], pa.int8()),
        "i16": pa.array([None, 0, 1, -1, 32767, -32768, 5, 7, 100, 3, 2, -7], pa.int16()),
        "i32": pa.array([None, 0, 1, -1, 2**31 - 1, -(2**31), 5, 7, 100, 3, 2, -7], pa.int32()),
        "i64": pa.array([None, 0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 7, 2**53, 3, 2, -7], pa.int64()),
        "j": pa.array([None, 0, 3, 2, 1, None, -3, 2, 7, 0, 5, 2], pa.int32()),
        "f32": pa.array([None, 0.0, -0.0, 0.1, NAN, INF, -INF, 1.5, -1.5, 2.5, 16777216.0, 100.0], pa.float32()),
        "f64": pa.array([None, 0.0, -0.0, 0.1, NAN, INF, -INF, 1.5, -1.5, 2.5, 1.005, 100.0], pa.float64()),
        "dec": pa.array(
            [
                None,
                *map(
                    Decimal,
                    [
                        "0.00",
                        "1.00",
                        "-1.00",
                        "99999999.99",
                        "-99999999.99",
                        "1.50",
                        "2.55",
                        "0.10",
                        "-0.10",
                        "7.00",
                        "100.00",
                    ],
                ),
            ],
            pa.decimal128(10, 2),
        ),
        "big": pa.array(
            [
                None,
                *map(
                    Decimal,
                    ["0", "1", "-1", "9999999999999999999999999999", "0.0000000001", "1.5", "2", "3", "4", "5", "6"],
                ),
            ],
            pa.decimal128(38, 10),
        ),
        "s": pa.array(
            [None, "", "a", "A", "abc", "a%b", "a_b\\", "straße", "ΑΣ", "\U0001f600", "\uffff", " x\n"], pa.string()
        ),
        "n": pa.array(
            [None, "0", "1", " -1 ", "007", "5", "+12", "100", "3", "2", "9223372036854775807", "1"], pa.string()
        ),
        "w": pa.array(
            [None, "abc", "bcd", "abcabc", "b", "ab", "foo.bar", "2020-01-01", "cab\n", "Abc", "x y", "a1b2"],
            pa.string(),
        ),
        "bin": pa.array(
            [None, b"", b"\x00", b"a", b"abc", b"\xff", b"\x80", b"\x7f", b"b", b"ab", b"\x00\x01", b"A"], pa.binary()
        ),
        "b": pa.array([None, True, False, True, False, None, True, False, True, False, True, False], pa.bool_()),
        "c": pa.array([None, True, False, False, True, True, None, False, True, None, False, True], pa.bool_()),
        "d": pa.array(
            [
                None,
                *map(
                    dt.date.fromisoformat,
                    [
                        "1970-01-01",
                        "2020-01-01",
                        "2020-01-31",
                        "2020-02-29",
                        "9999-12-31",
                        "0001-01-01",
                        "1969-12-31",
                        "2019-12-31",
                        "2021-06-15",
                        "2020-12-27",
                        "2000-03-01",
                    ],
                ),
            ],
            pa.date32(),
        ),
        "t": pa.array(
            [
                None,
                *map(
                    _ts,
                    [
                        *("1970-01-01", "2020-01-01", "2020-01-01 00:00:00.000001", "2020-01-01 12:34:56.789012"),
                        *(
                            "9999-12-31 23:59:59.999999",
                            "0001-01-01",
                            "1969-12-31 23:59:59.500000",
                            "2019-12-31 23:59:59",
                        ),
                        *("2020-02-29 06:00:00", "2020-01-02", "2021-06-15 01:02:03.004000"),
                    ],
                ),
            ],
            pa.timestamp("us", "UTC"),
        ),
        "z": pa.array(
            [
                None,
                *map(
                    _ntz,
                    [
                        *("1970-01-01", "2020-01-01", "2020-01-01 00:00:00.000001", "2020-01-01 12:34:56.789012"),
                        *(
                            "9999-12-31 23:59:59.999999",
                            "0001-01-01",
                            "1969-12-31 23:59:59.500000",
                            "2019-12-31 23:59:59",
                        ),
                        *("2020-02-29 06:00:00", "2020-01-02", "2021-06-15 01:02:03.004000"),
                    ],
                ),
            ],
            pa.timestamp("us"),
        ),
        "st": pa.array(
            [
                None,
                {"a": None, "s": None, "in": None},
                {"a": 1, "s": "x", "in": {"q": True}},
                {"a": 2, "s": "y", "in": {"q": False}},
                {"a": 3, "s": None, "in": {"q": None}},
                *[{"a": i, "s": str(i), "in": None} for i in range(7)],
            ],
            pa.struct([("a", pa.int32()), ("s", pa.string()), ("in", pa.struct([("q", pa.bool_())]))]),
        ),
        "arr": pa.array(
            [None, [], [1], [None], [1, 2, 3], [3, None, 1], [2], [2, 2], [0], [5, 6], [-1], [7, 8, 9, 10]],
            pa.list_(pa.int32()),
        ),
        "m": pa.array(
            [
                None,
                [],
                [("k", 1)],
                [("k", None)],
                [("j", 1), ("k", 2)],
                *[[("k", i), ("l", -i)] for i in range(7)],
            ],
            pa.map_(pa.string(), pa.int32()),
        ),
        "a b": pa.array(range(0, 120, 10), pa.int64()),
        "x.y": pa.array([None, *range(11)], pa.int64()),
        "Mixed": pa.array(["p", "q"] * 6, pa.string()),
    }
)

FILTERS = """
TRUE
FALSE
NULL
1 = 1
i32 = 1
I32 = 1
1 < i32
i32 <> 1
i32 != 1
i32 == 1
i32 >= 1 AND i32 <= 7
i32 < 1 OR i32 > 7
NOT i32 < 1
NOT (i32 < 1 OR i32 > 7)
!(i32 = 1)
i32 <=> 1
i32 <=> NULL
NOT (i32 <=> 1)
i32 = NULL
i32 IS NULL
i32 IS NOT NULL
isnull(i32)
isnotnull(i32)
i32 IS DISTINCT FROM 1
i32 IS NOT DISTINCT FROM NULL
i32 IN (1, 5)
i32 IN (1, NULL)
i32 NOT IN (1, 5)
i32 NOT IN (1, NULL)
i32 IN (NULL)
i32 IN ('1', 5)
i32 IN (1.5, 5)
i32 IN (1.0, 5)
i32 BETWEEN 1 AND 7
i32 NOT BETWEEN 1 AND 7
i32 BETWEEN 0.5 AND 6.5
5 BETWEEN i32 AND 100
i32 = 1.0
i32 = 1.5
i32 > 0.5
i32 >= 1.5
i32 < 1.5
i32 <= -0.5
i32 <> 1.5
i32 = 1e0
i32 > 1.5D
i32 < 99999999999
i32 > -99999999999
i32 = 99999999999
i32 <> 99999999999
i32 < 1e40
i32 = '1'
i32 = ' 5 '
i32 = '1.5'
i32 = 'x'
i32 > '1'
i8 > 126
i8 > 127
i8 >= -128
i8 < -128
i8 < 1000
i8 = 5Y
i16 = 5S
i8 + i8 = 10
i8 + 1 > 127
i8 + 100Y > 0
i32 + i32 > 0
i16 * 2 = 10
i64 = 9007199254740993
i64 = 9007199254740992D
i64 = 9007199254740993D
i64 > 9007199254740992D
i64 >= 9007199254740992D
i64 > 1.5e300
i64 < 9223372036854775808
i64 <= 9223372036854775807
i64 = -9223372036854775808
i64 > 9223372036854775807
i64 > CAST('NaN' AS DOUBLE)
i64 < CAST('NaN' AS DOUBLE)
i64 % 2 = 1
i64 % -2 = -1
i32 % 5 = 2
i32 % 5 = -2
i32 % j = 1
j <> 0 AND i32 % j = 1
j = 0 OR i32 % j = 1
pmod(i32, 5) = 3
mod(i32, 5) = -2
i32 DIV 2 = 3
i32 DIV 2 = -3
i32 / 2 = 3.5
i32 / 2 > 3
i32 / j > 1
j <> 0 AND i32 / j > 1
j != 0 AND i32 / j > 1
i32 / 0 = 1
try_divide(i32, j) > 1
try_divide(i32, j) IS NULL
try_add(i32, 1) IS NULL
-i32 = 7
abs(i32) = 1
abs(i8) = 1
abs(i8) > 5
- -i8 = 5
+i8 = 5
i32 & 1 = 1
i32 | 1 = 1
i32 ^ 1 = 0
~i32 = -2
i32 & 4 = 4
f64 > 5
f64 >= 5
f64 < 5
f64 <= 5
f64 = 0
f64 = 0.0
f64 = -0.0D
f64 <> 0.0
f64 != 1.5
NOT (f64 < 5)
NOT (f64 > 5)
f64 = 0.1
f32 = 0.1
f32 = CAST(0.1 AS FLOAT)
f32 > 0.1
f32 >= 0.1
f32 < 0.1
f32 <= 0.1
f32 = '0.1'
f32 = 16777216
f32 = 16777217
f32 > 16777216
f32 < 1e300
f32 > 1e300
f32 > -1e300
f64 = CAST('NaN' AS DOUBLE)
f64 <> CAST('NaN' AS DOUBLE)
f64 < CAST('NaN' AS DOUBLE)
f64 <= double('nan')
f64 > double('nan')
f64 >= double('nan')
f64 <=> double('NaN')
f64 IN (0.0, double('nan'))
f64 IN (-0.0D, 1.5D)
f64 NOT IN (0.0D, 1.5D)
f64 BETWEEN 0 AND 100
f64 BETWEEN 0 AND double('nan')
f64 = double('Infinity')
f64 > 1e308
isnan(f64)
isnan(f32)
NOT isnan(f64)
f64 = f32
f64 > f32
f32 + 1 > 2
f64 * 2 = 3
f64 / 2 = 0.75
f64 % 1 = 0.5
f32 * f64 > 1
f64 > i32
f32 = i32
floor(f64) = 1
floor(f64) = 0
ceil(f64) = 2
ceil(f64) = 0
round(f64) = 3
round(f64) = -2
round(f64, 2) = 1.01
round(f64, 1) = 0.1
sqrt(f64) > 1
isnan(sqrt(f64))
ln(f64) IS NULL
ln(f64) > 0
log10(f64) = 2
exp(f64) = 1
pow(f64, 2) = 2.25
power(i32, 2) = 49
sign(f64) = 1
signum(f64) = 0
greatest(f64, 1.0D) = 1
greatest(i32, j) = 5
least(i32, j) = 1
greatest(f64, 1e9D) > 1e9
least(f64, 0D) = 0
dec = 1.5
dec = 1.50
dec = 1.500
dec = 1.505
dec > 1.505
dec < 1.505
dec >= 2.549
dec = 1
dec = '1.5'
dec = '2.55'
dec = 1.5D
dec = 0.1D
dec > 0.1D
dec < 100000000
dec > 100000000
dec = 99999999.99
dec = 99999999.994
dec > -1e30
dec IN (1.5, 7)
dec IN (0.1D)
dec + 1 = 2.5
dec * 2 = 3
dec * dec = 2.25
dec - 0.05 = 2.5
dec / 2 = 0.75
dec / 3 = 0.333333
dec / 3 > 2.33
dec % 1 = 0.5
dec = i32
dec > f64
dec = big
big = 1.5
big = 0.0000000001
big > 1e20
big = 9999999999999999999999999999
big < 0.00000000005
big = 1.5D
big + 1 > 1e27
round(dec) = 3
round(dec, 1) = 2.6
floor(dec) = 2
ceil(dec) = 3
abs(dec) = 0.1
i32 = dec
s = 'a'
s = ''
s > 'a'
s >= 'a'
s < 'a'
s > 'z'
s > '\\U0001F5FF'
s > '\uf000'
s < '\ud7ff'
s <> 'a'
s <=> 'a'
s IN ('a', 'abc', NULL)
s BETWEEN 'a' AND 'b'
s LIKE 'a%'
s LIKE 'a'
s LIKE 'a_c'
s LIKE '%b%'
s LIKE 'a\\%b'
s LIKE 'a\\_%'
s LIKE 'a_b\\\\\\\\'
s LIKE 'a!%b' ESCAPE '!'
s LIKE '_'
s LIKE ''
s LIKE '%'
s NOT LIKE 'a%'
s LIKE 'a\\bc'
s LIKE NULL
s ILIKE 'A%'
s ILIKE 'STRASSE'
s LIKE '%x%'
startswith(s, 'a')
startswith(s, '')
NOT startswith(s, 'a')
endswith(s, 'b')
contains(s, 'b')
contains(s, '')
upper(s) = 'A'
upper(s) = 'STRASSE'
lower(s) = 'a'
lower(s) = 'ας'
lower(s) = 'ασ'
length(s) = 1
length(s) = 6
char_length(s) > 2
length(bin) = 2
trim(s) = 'x'
trim(s) = 'x\\n'
ltrim(s) = 'x\\n'
rtrim(s) = 'a'
trim(BOTH 'a' FROM s) = 'bc'
trim(LEADING 'a' FROM s) = 'bc'
trim(n) = '-1'
substring(s, 1, 1) = 'a'
substring(s, 0, 2) = 'ab'
substring(s, 2) = 'bc'
substring(s, -1) = 'c'
substring(s, -5, 3) = 'a'
substring(s, -2, 1) = 'b'
substr(w, j, 2) = 'bc'
substring(w, 1, -1) = ''
substring(s FROM 1 FOR 2) = 'ab'
left(s, 2) = 'ab'
left(s, -1) = ''
right(s, 2) = 'bc'
right(s, -1) = ''
concat(s, 'x') = 'ax'
s || 'x' = 'ax'
s || i32 = 'a1'
concat(s, NULL) IS NULL
concat(i32, '-', d) = '1-2020-01-01'
replace(s, 'b', 'x') = 'axc'
replace(s, '', 'x') = 'abc'
reverse(s) = 'cba'
repeat(s, 2) = 'aa'
repeat(s, -1) = ''
lpad(s, 3, 'x') = 'xxa'
rpad(s, 3, 'xy') = 'axy'
lpad(s, 2, 'x') = 'ab'
lpad(s, -1, 'x') = ''
rpad(s, 2) = 'a '
instr(s, 'b') = 2
instr(s, '') = 1
locate('b', s) = 2
position('b' IN s) = 2
md5(s) = '0cc175b9c0f1b6a831c399e269772661'
sha2(s, 256) = 'ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'
w RLIKE '^a'
w RLIKE 'b$'
w RLIKE '^[a-c]+$'
w RLIKE 'b\\\\d'
w RLIKE '\\\\.'
w RLIKE r'\\s'
w RLIKE 'a.c'
w RLIKE '(?i)^abc$'
w REGEXP 'foo|x'
rlike(w, 'ab$')
w NOT RLIKE 'a'
w RLIKE '^.{4}$'
w RLIKE '^cab$'
w RLIKE '[^a-z]'
n = 1
n = 5
n > 2
n + 1 > 2
n IN (1, 5)
CAST(n AS INT) = 7
CAST(n AS BIGINT) = 9223372036854775807
TRY_CAST(n AS INT) IS NULL
TRY_CAST(w AS INT) IS NULL
TRY_CAST(w AS DATE) = '2020-01-01'
try_cast(w AS DOUBLE) IS NOT NULL
CAST(n AS DOUBLE) = 100
CAST(n AS DECIMAL(20, 1)) = 2
CAST(w AS INT) = 1
n = 1.0
n > 1.5D
w = 1
'1' = i32
'a' = s
bin = X'61'
bin = 'a'
bin > X'7F'
bin < X'80'
bin >= X''
bin = X'FF'
bin IN (X'00', X'6162')
bin LIKE 'a%'
b
NOT b
b = TRUE
b = 'true'
b = 'yes'
b <> FALSE
b IS TRUE
b IS NOT TRUE
b IS FALSE
b IS NOT FALSE
b IS UNKNOWN
b = 1
b AND c
b OR c
b AND NOT c
b = c
b <=> c
b < c
b > FALSE
NOT (b AND c)
NOT (b OR c)
(b AND c) IS NULL
b IN (TRUE)
CAST(b AS INT) = 1
CAST(i32 AS BOOLEAN)
d = '2020-01-01'
d > '2020-01-01'
d >= '2020'
d = '2020-1-1'
d = '2020-01-01 12:00:00'
d = 'x'
d = DATE '2020-01-01'
d > DATE'2020-01-01'
d = TIMESTAMP '2020-01-01 00:00:00'
d < TIMESTAMP '2020-01-01 12:00:00'
d >= TIMESTAMP '2020-01-01 12:00:00'
d = TIMESTAMP '2020-01-01 12:00:00'
d <> TIMESTAMP '2020-01-01 12:00:00'
d IN ('2020-01-01', '1970-01-01')
d BETWEEN '2020-01-01' AND '2020-12-31'
d = 5
d > t
d = t
d + 1 = '2020-02-01'
d - 1 = '2019-12-31'
d + INTERVAL 1 DAY = '2020-02-01'
d + INTERVAL '1' MONTH = DATE '2020-02-29'
d - INTERVAL 1 YEAR = DATE '2019-02-28'
d + INTERVAL 12 HOURS > TIMESTAMP '2020-01-01 00:00:00'
date_add(d, 1) = '2020-02-01'
date_sub(d, 1) = '2019-12-31'
datediff(d, '2020-01-01') = 30
datediff(d, '2020-01-01') < 0
add_months(d, 1) = '2020-02-29'
last_day(d) = '2020-01-31'
year(d) = 2020
year(d) <> 2020
year(d) > 2019
year(d) < 2020
year(d) <= 2019
year(d) >= 2020
year(d) IN (2019, 2020)
year(t) = 2020
year(t) = '2020'
year(z) = 1969
month(d) = 12
day(d) = 31
dayofmonth(t) = 31
quarter(d) = 1
dayofweek(d) = 1
weekday(d) = 6
dayofyear(d) = 60
weekofyear(d) = 52
hour(t) = 12
minute(t) = 34
second(t) = 59
hour(z) = 23
extract(YEAR FROM d) = 2020
extract(DOW FROM d) = 1
date_part('month', d) = 2
date_trunc('MONTH', t) = '2020-01-01'
date_trunc('week', t) = '2019-12-30'
date_trunc('HOUR', t) = TIMESTAMP '2020-01-01 12:00:00'
trunc(d, 'MM') = '2020-01-01'
trunc(d, 'YEAR') = '2020-01-01'
date_format(t, 'yyyy-MM') = '2020-01'
date_format(d, 'yyyyMMdd') = '20200101'
make_date(2020, 1, i32) = '2020-01-01'
to_date(t) = '2020-01-01'
date(t) = DATE '2020-01-01'
CAST(t AS DATE) = '2020-01-01'
CAST(t AS DATE) > '2020-01-01'
CAST(t AS DATE) <> DATE '2020-01-01'
CAST(t AS DATE) <= '2019-12-31'
CAST(t AS DATE) IN ('2020-01-01')
CAST(t AS DATE) = d
t = '2020-01-01'
t = '2020-01-01 00:00:00'
t = '2020-01-01T00:00:00Z'
t = '2020-01-01 01:00:00+01:00'
t = '2020-01-01 00:00:00 UTC'
t = '2020-01-01 01:00:00 Europe/Paris'
t > '2020-01-01 00:00:00'
t > '2020-01-01 12:34:56.789'
t >= '2020-01-01 12:34:56.789012'
t >= '2020-01-01 12:34:56.7890129'
t < '1970'
t < '1970-01-01'
t = TIMESTAMP '2020-01-01 00:00:00'
t = TIMESTAMP '2020-01-01 02:00:00+02:00'
t = TIMESTAMP_NTZ '2020-01-01 00:00:00'
t = DATE '2020-01-01'
t > DATE '2020-01-01'
t BETWEEN '2020-01-01' AND '2020-01-02'
t IN ('2020-01-01', '1970-01-01')
t = 'x'
t = z
z = '2020-01-01 00:00:00'
z = '2020-01-01T00:00:00+05:00'
z > TIMESTAMP_NTZ '2020-01-01 00:00:00'
z > TIMESTAMP '2020-01-01 00:00:00Z'
z > DATE '2020-01-01'
t + INTERVAL 1 DAY > '2020-01-02 12:00:00'
t - INTERVAL '1' SECOND < TIMESTAMP '1970-01-01'
t - INTERVAL 1 MONTH = '2019-12-01'
unix_seconds(t) = -1
unix_millis(t) = -500
unix_micros(t) = -500000
unix_date(d) = -1
timestamp_seconds(i32) = '1970-01-01 00:00:01'
timestamp_millis(i32) < '1970-01-01'
timestamp_micros(i64) IS NULL
date_from_unix_date(i32) = '1970-01-02'
CAST(t AS BIGINT) = -1
CAST(i32 AS TIMESTAMP) = '1970-01-01 00:00:01'
CAST(t AS STRING) = '2020-01-01 12:34:56.789012'
CAST(t AS STRING) = '1969-12-31 23:59:59.5'
CAST(t AS STRING) = '2020-01-01 00:00:00'
CAST(d AS STRING) = '2020-01-01'
CAST(d AS TIMESTAMP) = '2020-01-01'
CAST(i32 AS STRING) = '5'
CAST(dec AS STRING) = '1.50'
CAST(b AS STRING) = 'true'
CAST(bin AS STRING) = 'abc'
CAST(s AS BINARY) = X'61'
CAST(f64 AS INT) = 1
CAST(f64 AS INT) = 0
f64 BETWEEN -10 AND 10 AND CAST(f64 AS INT) = -1
f64 BETWEEN -10 AND 10 AND CAST(f64 AS DECIMAL(10, 2)) = 1.01
CAST(dec AS INT) = 2
CAST(dec AS INT) = 0
CAST(dec AS DOUBLE) = 2.55
CAST(dec AS DECIMAL(10, 1)) = 2.6
CAST(i32 AS DECIMAL(5, 0)) = 1
CAST(i64 AS INT) = 1
TRY_CAST(i64 AS INT) = 1
TRY_CAST(f64 AS INT) IS NULL
CAST(i64 AS DOUBLE) = 9007199254740992D
CAST(f64 AS FLOAT) = f32
int(n) = 7
double(n) = 100
string(i32) = '1'
st.a = 1
st.a > 1
ST.A = 1
st.s = 'x'
st.a IS NULL
st IS NULL
st IS NOT NULL
st.in.q
NOT st.in.q
st.in.q IS NULL
st.in IS NULL
st.s IN ('0', '1')
st.s LIKE '1%'
st.a + 1 = 2
st.a = 1 OR st.s = 'y'
arr[0] = 1
size(arr) > 0 AND arr[0] = 1
get(arr, 0) = 1
get(arr, 5) IS NULL
size(arr) > 1
size(arr) = 0
size(arr) IS NULL
cardinality(arr) = 2
array_contains(arr, 1)
NOT array_contains(arr, 1)
array_contains(arr, 1) IS NULL
arr IS NULL
arr IS NOT NULL
element_at(arr, 1) = 1
try_element_at(arr, -1) = 1
try_element_at(arr, 9) IS NULL
m['k'] = 2
m['k'] IS NULL
m.k = 2
element_at(m, 'k') = 1
map_contains_key(m, 'j')
size(m) = 1
coalesce(i32, -99) = -99
coalesce(j, i32) < 0
nvl(i32, 5) = 5
ifnull(i32, 5) = 5
coalesce(s, 'none') = 'none'
coalesce(d, DATE '2000-01-01') = '2000-01-01'
nullif(i32, 1) IS NULL
nvl2(i32, j, -1) = -1
if(i32 > 0, s, 'neg') = 'neg'
CASE WHEN i32 > 0 THEN 'p' WHEN i32 < 0 THEN 'n' END = 'n'
CASE WHEN i32 > 0 THEN TRUE ELSE b END
CASE i32 WHEN 1 THEN 'one' WHEN 5 THEN 'five' ELSE 'other' END = 'other'
CASE i32 WHEN 1 THEN 'one' END IS NULL
CASE WHEN j = 0 THEN FALSE ELSE i32 / j > 1 END
i32 = j
i32 > j
i32 < j + 1
i32 + j = 4
i32 = 1 AND s = 'a'
i32 = 1 OR s = 'abc'
(i32 = 1 OR s = 'abc') AND NOT b
i32 = 1 AND upper(s) = 'A'
upper(s) = 'A' OR length(s) = 3 OR i32 = 7
i32 > 0 AND (s LIKE 'a%' OR f64 > 2) AND d >= '2020-01-01'
`a b` > 50
`x.y` = 5
mixed = 'p'
`mixed` = 'q'
MIXED <> 'p'
i32 = CAST('1' AS INT)
i32 = 2 - 1
i32 = length('a')
d = DATE '2019-12-31' + 1
d = date_add('2019-12-31', 1)
d >= trunc(DATE '2020-05-05', 'YEAR')
t > TIMESTAMP '2020-01-01' - INTERVAL 1 DAY
s = concat('a', 'bc')
s = 'ab' 'c'
w = 'it''s'
i32 > 1 AND TRUE
i32 > 1 OR TRUE
i32 > 1 AND FALSE
i32 > 1 AND NULL
i32 > 1 OR NULL
current_date() > d
d < current_date
t <= now()
st = st
arr = arr
arr <> arr
i32 IN ('1', '5')
n IN ('1', '5')
n IN (1, 2)
s IN ('a', NULL)
greatest(s, 'b') = 'b'
least(s, 'b') = 'a'
greatest(d, DATE '2020-01-01') = d
coalesce(n, 5) = 5
if(b, 1, 1.5) = 1.5
if(b, d, t) = '2020-01-01'
d || '' = '2020-01-01'
concat(t, '') = '2020-01-01 00:00:00'
-f64 = 1.5
-dec = 1
f64 - f32 = 0
i64 + 1 > 0
i32 - 1 = 0
i32 BETWEEN '1' AND '7'
d BETWEEN DATE '2020-01-01' AND TIMESTAMP '2020-01-31 00:00:00'
t NOT BETWEEN '2020-01-01' AND '2020-01-02'
s BETWEEN 'a' AND NULL
s NOT BETWEEN 'a' AND NULL
trim(TRAILING 'c' FROM s) = 'ab'
d > to_date('2020-01-01')
t > to_timestamp('2020-01-01 00:00:00')
year('2020-05-05') = 2020
date_add(t, 1) = '2020-01-02'
datediff(t, d) = 0
date_add('2020-01-01', i32) = '2020-01-02'
i32 % 2.5 = 0
f64 % 0 = 1
f64 / 0 > 1
f64 / 2 > 1
s = NULL
NULL = s
s <=> NULL
NULL <=> NULL
NULL IS NULL
i32 IS TRUE
CAST(NULL AS INT) = i32
CAST('2020-01-01' AS DATE) = d
CAST('abc' AS BOOLEAN) = b
CAST(b AS STRING) = 'false'
TRY_CAST(s AS BOOLEAN) IS NULL
TRY_CAST(w AS TIMESTAMP) = '2020-01-01'
TRY_CAST(n AS DECIMAL(3, 0)) = 7
TRY_CAST(n AS DECIMAL(3, 0)) IS NULL
CAST(n AS FLOAT) = 7
CAST(d AS INT) = 1
CAST(f64 AS BOOLEAN)
CAST(dec AS BOOLEAN)
CAST(b AS DECIMAL(3, 1)) = 1.0
CAST(b AS DOUBLE) = 1
CAST(z AS TIMESTAMP) = t
CAST(t AS TIMESTAMP_NTZ) = z
CAST(z AS STRING) = '2020-01-01 12:34:56.789012'
CAST(z AS DATE) = '2020-01-01'
CAST(z AS DATE) < '1970-01-01'
CAST(' 5 ' AS INT) = i32
CAST('1e3' AS INT) = i32
CAST(i32 AS STRING) LIKE '1%'
CAST(i32 AS DOUBLE) = 1
CAST(i32 AS BIGINT) > 5
CAST(i64 AS FLOAT) > 1e10
CAST(dec AS FLOAT) = 2.55
m['k'] + 1 = 2
element_at(m, 'zz') IS NULL
m['k'] IN (1, 2)
st.s || 'z' = 'xz'
arr[size(arr) - 1] = 3
get(arr, size(arr) - 1) = 3
regexp_like(w, 'a.*c')
length(bin) > 0
bin || X'00' = X'6100'
bin = s
s > bin
d = '2020-01-01T00:00'
d = '2020'
i32 = 1.0D
i32 <> CAST('NaN' AS DOUBLE)
i32 < double('inf')
i8 = 1e2
i8 < 1e2
dec < 'abc'
dec = 'NaN'
dec < 'NaN'
dec > double('nan')
dec < double('inf')
big = '1.5'
big > 1e10
f32 IN (0.1, 1.5)
f64 IN (1, 2.5)
f64 IN (0.1, 1.5)
dec IN (1, 1.5, 2.55)
dec NOT IN (1.505)
dec NOT IN (1.505, NULL)
NOT (i32 IN (1, 5) AND s IS NULL)
(i32 > 1) = b
(i32 > 1) <=> b
isnull(b AND c)
(b OR c) IS NOT NULL
s LIKE '%\\\\%%'
s LIKE '_%b_%'
s LIKE 'a%b' OR s LIKE 'a%c'
date_trunc('QUARTER', d) = '2020-01-01'
trunc(t, 'YEAR') = '2020-01-01'
trunc(d, 'WEEK') = '2019-12-30'
date_trunc('DAY', z) = '2020-01-01'
date_trunc('minute', t) = '2020-01-01 12:34:00'
last_day(t) = '2020-01-31'
add_months(d, -1) = '2020-01-29'
dayofweek(z) = 4
extract(WEEK FROM d) = 1
extract(DOY FROM t) = 1
d > '9999-12-30'
d < '0001-01-02'
d < '+10000-01-01'
t < '+10000-01-01'
t > '0001-01-01 00:00:00'
i64 > 1e19
i64 BETWEEN -1e300 AND 1e300
s = '😀'
length(s) = 1 AND s > '\\uF000'
lower(s) LIKE 'a%'
nullif(s, 'a') = 'abc'
i32 DIV 0 = 1
i32 DIV j = 2
10 % i32 = 0
1 = 1 AND i32 = 1
1 = 2 OR i32 = 1
current_timestamp() > t
power(2, j) = 8
sqrt(i32) = 10
round(i32) = 5
round(f32, 1) = 0.1
round(dec, 5) = 2.55
sign(dec) = -1
abs(f64) = 1.5
abs(dec) = 1
ceil(i32) = 5
i32 = -(-1)
TIMESTAMP '2020-01-01' = d
DATE '2020-01-01' = t
z = t - INTERVAL 0 HOURS
t + INTERVAL 1 MONTH > d
d + INTERVAL 3 WEEKS = '2020-01-22'
upper(w) LIKE 'AB%' AND i32 < 6
CASE WHEN s = 'a' THEN 1 WHEN s = 'abc' THEN 2.5 END > 1
CASE WHEN i32 > 0 THEN NULL ELSE FALSE END IS NULL
CASE s WHEN 'a' THEN TRUE END
nvl2(s, 1, 0) = 0
i32 | 6 = 7
i32 ^ j = 2
i8 & j = 1
shiftleft(i32, 1) = 2
hex(i32) = '1'
f64 > '1.5'
f64 = 'NaN'
f32 < 'Infinity'
CAST('inf' AS FLOAT) = f32
b > c
b IN (TRUE, NULL)
b NOT IN (FALSE)
st IN (st)
size(m) + size(arr) > 3
substring(bin, 1, 1) = X'61'
left(w, j) = 'ab'
s || NULL = 'a'
try_divide(dec, 0) IS NULL
try_divide(f64, j) > 1
try_subtract(i8, 100Y) IS NULL
try_multiply(i32, 2) = 14
unix_timestamp(t) = 0
datediff(d, NULL) IS NULL
make_date(2020, 13, 1) IS NULL
isnan(i32)
f64 <=> f32
d <=> t
i32 <=> '1'
NOT (s <=> 'a')
s <=> w
w RLIKE '[[:alpha:]]'
w RLIKE '^a|b$'
w RLIKE 'a{2}'
w RLIKE '\\\\bx'
w RLIKE ''
s LIKE 'a\\_b%'
s LIKE 'a_b\\\\\\\\'
left(w, j) IS NULL
right(w, j) IS NULL
repeat(w, j) IS NULL
repeat(w, j) = ''
lpad(w, j, 'x') IS NULL
rpad(w, j, 'x') IS NULL
""".strip().split("\n")
