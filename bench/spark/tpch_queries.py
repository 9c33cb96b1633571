"""The 22 TPC-H queries with the parameters of the validation run, in SQL for both Spark and DuckDB.

``{lineitem}`` and so on stand for the tables.  The benchmark is defined by the TPC's specification, revision 3.
"""

from __future__ import annotations

#: By number.
QUERIES: dict[int, str] = {
    1: """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice) AS base_price,
            sum(l_extendedprice * (1 - l_discount)) AS price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS charge, avg(l_quantity) AS mean_quantity,
            avg(l_extendedprice) AS mean_price, avg(l_discount) AS mean_discount, count(*) AS orders
        FROM {lineitem} WHERE l_shipdate <= date '1998-12-01' - interval '90' day
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    2: """
        SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        FROM {part}, {supplier}, {partsupp}, {nation}, {region}
        WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = 15 AND p_type LIKE '%BRASS'
            AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
            AND ps_supplycost = (
                SELECT min(ps_supplycost) FROM {partsupp}, {supplier}, {nation}, {region}
                WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey
                    AND n_regionkey = r_regionkey AND r_name = 'EUROPE')
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100""",
    3: """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM {customer}, {orders}, {lineitem}
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate < date '1995-03-15' AND l_shipdate > date '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    4: """
        SELECT o_orderpriority, count(*) AS orders FROM {orders}
        WHERE o_orderdate >= date '1993-07-01' AND o_orderdate < date '1993-07-01' + interval '3' month
            AND EXISTS (SELECT * FROM {lineitem} WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority ORDER BY o_orderpriority""",
    5: """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM {customer}, {orders}, {lineitem}, {supplier}, {nation}, {region}
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
            AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
            AND o_orderdate >= date '1994-01-01' AND o_orderdate < date '1994-01-01' + interval '1' year
        GROUP BY n_name ORDER BY revenue DESC""",
    6: """
        SELECT sum(l_extendedprice * l_discount) AS revenue FROM {lineitem}
        WHERE l_shipdate >= date '1994-01-01' AND l_shipdate < date '1994-01-01' + interval '1' year
            AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    7: """
        SELECT supplier, customer, year, sum(volume) AS revenue FROM (
            SELECT a.n_name AS supplier, b.n_name AS customer, extract(year FROM l_shipdate) AS year,
                l_extendedprice * (1 - l_discount) AS volume
            FROM {supplier}, {lineitem}, {orders}, {customer}, {nation} a, {nation} b
            WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
                AND s_nationkey = a.n_nationkey AND c_nationkey = b.n_nationkey
                AND ((a.n_name = 'FRANCE' AND b.n_name = 'GERMANY') OR (a.n_name = 'GERMANY' AND b.n_name = 'FRANCE'))
                AND l_shipdate BETWEEN date '1995-01-01' AND date '1996-12-31') AS shipping
        GROUP BY supplier, customer, year ORDER BY supplier, customer, year""",
    8: """
        SELECT year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS share FROM (
            SELECT extract(year FROM o_orderdate) AS year, l_extendedprice * (1 - l_discount) AS volume,
                b.n_name AS nation
            FROM {part}, {supplier}, {lineitem}, {orders}, {customer}, {nation} a, {nation} b, {region}
            WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
                AND c_nationkey = a.n_nationkey AND a.n_regionkey = r_regionkey AND r_name = 'AMERICA'
                AND s_nationkey = b.n_nationkey AND o_orderdate BETWEEN date '1995-01-01' AND date '1996-12-31'
                AND p_type = 'ECONOMY ANODIZED STEEL') AS nations
        GROUP BY year ORDER BY year""",
    9: """
        SELECT nation, year, sum(amount) AS profit FROM (
            SELECT n_name AS nation, extract(year FROM o_orderdate) AS year,
                l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
            FROM {part}, {supplier}, {lineitem}, {partsupp}, {orders}, {nation}
            WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
                AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%green%') AS profits
        GROUP BY nation, year ORDER BY nation, year DESC""",
    10: """
        SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address,
            c_phone, c_comment
        FROM {customer}, {orders}, {lineitem}, {nation}
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= date '1993-10-01'
            AND o_orderdate < date '1993-10-01' + interval '3' month AND l_returnflag = 'R'
            AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        ORDER BY revenue DESC, c_custkey LIMIT 20""",
    11: """
        SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value FROM {partsupp}, {supplier}, {nation}
        WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY'
        GROUP BY ps_partkey HAVING sum(ps_supplycost * ps_availqty) > (
            SELECT sum(ps_supplycost * ps_availqty) * 0.0001 FROM {partsupp}, {supplier}, {nation}
            WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY')
        ORDER BY value DESC, ps_partkey""",
    12: """
        SELECT l_shipmode,
            sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high,
            sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low
        FROM {orders}, {lineitem}
        WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
            AND l_shipdate < l_commitdate AND l_receiptdate >= date '1994-01-01'
            AND l_receiptdate < date '1994-01-01' + interval '1' year
        GROUP BY l_shipmode ORDER BY l_shipmode""",
    13: """
        SELECT orders, count(*) AS customers FROM (
            SELECT c_custkey, count(o_orderkey) AS orders
            FROM {customer} LEFT JOIN {orders} ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
            GROUP BY c_custkey) AS counts
        GROUP BY orders ORDER BY customers DESC, orders DESC""",
    14: """
        SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
            / sum(l_extendedprice * (1 - l_discount)) AS promotion
        FROM {lineitem}, {part} WHERE l_partkey = p_partkey AND l_shipdate >= date '1995-09-01'
            AND l_shipdate < date '1995-09-01' + interval '1' month""",
    15: """
        WITH revenue AS (
            SELECT l_suppkey AS supplier, sum(l_extendedprice * (1 - l_discount)) AS total FROM {lineitem}
            WHERE l_shipdate >= date '1996-01-01' AND l_shipdate < date '1996-01-01' + interval '3' month
            GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, s_address, s_phone, total FROM {supplier}, revenue
        WHERE s_suppkey = supplier AND total = (SELECT max(total) FROM revenue) ORDER BY s_suppkey""",
    16: """
        SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS suppliers FROM {partsupp}, {part}
        WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
            AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
            AND ps_suppkey NOT IN (SELECT s_suppkey FROM {supplier} WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size ORDER BY suppliers DESC, p_brand, p_type, p_size""",
    17: """
        SELECT sum(l_extendedprice) / 7.0 AS yearly FROM {lineitem}, {part}
        WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
            AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM {lineitem} WHERE l_partkey = p_partkey)""",
    18: """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM {customer}, {orders}, {lineitem}
        WHERE o_orderkey IN (SELECT l_orderkey FROM {lineitem} GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
            AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100""",
    19: """
        SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM {lineitem}, {part}
        WHERE p_partkey = l_partkey AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON' AND (
            (p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
                AND l_quantity BETWEEN 1 AND 11 AND p_size BETWEEN 1 AND 5)
            OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
                AND l_quantity BETWEEN 10 AND 20 AND p_size BETWEEN 1 AND 10)
            OR (p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
                AND l_quantity BETWEEN 20 AND 30 AND p_size BETWEEN 1 AND 15))""",
    20: """
        SELECT s_name, s_address FROM {supplier}, {nation}
        WHERE s_suppkey IN (
                SELECT ps_suppkey FROM {partsupp}
                WHERE ps_partkey IN (SELECT p_partkey FROM {part} WHERE p_name LIKE 'forest%') AND ps_availqty > (
                    SELECT 0.5 * sum(l_quantity) FROM {lineitem}
                    WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= date '1994-01-01'
                        AND l_shipdate < date '1994-01-01' + interval '1' year))
            AND s_nationkey = n_nationkey AND n_name = 'CANADA'
        ORDER BY s_name""",
    21: """
        SELECT s_name, count(*) AS waits FROM {supplier}, {lineitem} a, {orders}, {nation}
        WHERE s_suppkey = a.l_suppkey AND o_orderkey = a.l_orderkey AND o_orderstatus = 'F'
            AND a.l_receiptdate > a.l_commitdate
            AND EXISTS (SELECT * FROM {lineitem} b WHERE b.l_orderkey = a.l_orderkey AND b.l_suppkey <> a.l_suppkey)
            AND NOT EXISTS (
                SELECT * FROM {lineitem} c
                WHERE c.l_orderkey = a.l_orderkey AND c.l_suppkey <> a.l_suppkey AND c.l_receiptdate > c.l_commitdate)
            AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA'
        GROUP BY s_name ORDER BY waits DESC, s_name LIMIT 100""",
    22: """
        SELECT code, count(*) AS customers, sum(c_acctbal) AS balance FROM (
            SELECT substring(c_phone, 1, 2) AS code, c_acctbal FROM {customer}
            WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
                AND c_acctbal > (
                    SELECT avg(c_acctbal) FROM {customer} WHERE c_acctbal > 0.00
                        AND substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
                AND NOT EXISTS (SELECT * FROM {orders} WHERE o_custkey = c_custkey)) AS sales
        GROUP BY code ORDER BY code""",
}
