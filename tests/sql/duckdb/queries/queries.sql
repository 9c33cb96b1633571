-- Queries whose answers are recorded from Spark (record_answers.py): one a line; a SELECT of several plain
-- expressions is asked for each of them.
SELECT id, x FROM {t} LATERAL VIEW OUTER explode(l) e AS x
SELECT id, x FROM {t} LATERAL VIEW explode(l) e AS x
SELECT id, p, x FROM {t} LATERAL VIEW posexplode(l) e AS p, x
SELECT id, k, v FROM {t} LATERAL VIEW explode(m) e AS k, v
SELECT id, k, v FROM {t} LATERAL VIEW OUTER explode(m) e AS k, v
SELECT id, explode(l) FROM {t}
SELECT id, explode_outer(l) FROM {t}
SELECT id, posexplode(l) FROM {t}
SELECT id, posexplode_outer(l) FROM {t}
SELECT id, explode(m) FROM {t}
SELECT id, inline(array(st)) FROM {t}
SELECT stack(2, 1, 'a', 2, 'b')
SELECT count(DISTINCT i, s) FROM {t}
SELECT count(i, s) FROM {t}
SELECT s FROM {t} ORDER BY s
SELECT s FROM {t} ORDER BY s DESC
SELECT f FROM {t} WHERE f <> 0 ORDER BY f
SELECT f FROM {t} WHERE f <> 0 ORDER BY f DESC
SELECT s FROM {t} ORDER BY s LIMIT 1
SELECT i FROM {t} ORDER BY 1 LIMIT 3
SELECT id, row_number() OVER (ORDER BY s, id) FROM {t}
SELECT id, rank() OVER (PARTITION BY b ORDER BY i DESC) FROM {t}
SELECT id, lag(i) OVER (ORDER BY id), lead(i, 2, -1) OVER (ORDER BY id) FROM {t}
SELECT id, sum(i) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM {t}
SELECT id, first_value(i) OVER (PARTITION BY b ORDER BY id), last_value(s) OVER (PARTITION BY b ORDER BY id) FROM {t}
SELECT id, ntile(3) OVER (ORDER BY id), percent_rank() OVER (ORDER BY id), cume_dist() OVER (ORDER BY id) FROM {t}
SELECT 7/2, -7/2, 7 div 2, -7 div 2, 7 % -3, -7 % 3, pmod(-7,3), mod(-7,3)
SELECT 1/0
SELECT 1 % 0
SELECT 1 div 0
SELECT i/0 FROM {t}
SELECT f/0 FROM {t}
SELECT try_divide(1,0)
SELECT dec/3, dec*dec, dec+1, dec % 0.7 FROM {t}
SELECT dec/7 FROM {t}
SELECT avg(dec), sum(dec), avg(i), sum(i), avg(f) FROM {t} WHERE id < 5
SELECT max(f), min(f) FROM {t}
SELECT id FROM {t} WHERE f = f
SELECT id FROM {t} WHERE f > 1e308
SELECT id FROM {t} WHERE f = 'NaN'
SELECT id FROM {t} WHERE f = -0.0
SELECT f, count(*) FROM {t} GROUP BY f
SELECT DISTINCT f FROM {t}
SELECT cast('12' as int), cast(' 12 ' as int), cast('1.5' as double), cast(1.7 as int), cast(-1.7 as int), cast(2.5 as int), cast('true' as boolean), cast('t' as boolean), cast('yes' as boolean), cast(1 as boolean)
SELECT cast(3.5 as int), cast(cast(3.5 as double) as int), cast(-3.5D as bigint), cast(2.5 as decimal(3,0))
SELECT cast(f as int) FROM {t} WHERE id IN (3,4,8,9)
SELECT cast(f as string) FROM {t}
SELECT cast(dec as string), cast(d as string), cast(ts as string), cast(b as string) FROM {t}
SELECT cast(l as string), cast(m as string), cast(st as string) FROM {t}
SELECT cast(1e10 as string), cast(1e-5 as string), cast(0.1f as string), cast(100000000.0D as string)
SELECT cast('2024-02-30' as date)
SELECT try_cast('2024-02-30' as date), try_cast('x' as int)
SELECT cast('2024-2-3' as date), cast('2024' as date), cast('2024-02-03 10' as timestamp)
SELECT cast(ts as date), cast(d as timestamp), cast(ts as bigint), cast(ts as double) FROM {t}
SELECT substring(s, 1, 3), substring(s, -2), substring(s, 0, 2), left(s,2), right(s,2), substr(s,2) FROM {t}
SELECT length(s), upper(s), lower(s), trim(s), ltrim(s), rtrim(s), reverse(s), initcap(s) FROM {t}
SELECT concat(s, 'x'), concat(s, NULL), s || 'y', concat_ws('-', s, 'z', NULL) FROM {t}
SELECT lpad(s, 5, '*'), rpad(s, 5, '*'), lpad(s, 2), repeat(s, 2), locate('a', s), instr(s, 'a'), position('a' in s) FROM {t}
SELECT split(s, ','), split('a1b2', '[0-9]'), split('a,b,c', ',', 2) FROM {t}
SELECT split_part('a,b,c', ',', 2), split_part('a,b,c', ',', -1)
SELECT regexp_replace(s, 'a', 'X'), regexp_extract('foo123', '([a-z]+)([0-9]+)', 2), regexp_extract('foo123','([a-z]+)'), s RLIKE '^a' FROM {t}
SELECT regexp_extract_all('a1b2', '([a-z])([0-9])', 1), regexp_like('abc', 'b'), regexp_count('abab','a')
SELECT s LIKE 'a%', s LIKE '%\%%', s ILIKE 'A%', s NOT LIKE '%a%' FROM {t}
SELECT s LIKE ANY ('a%', 'B%'), s LIKE ALL ('a%', '%e') FROM {t}
SELECT replace(s, 'a', ''), translate(s, 'abc', 'xyz'), ascii(s), chr(65), char(66), space(3), overlay('abcdef' PLACING 'XX' FROM 2 FOR 3) FROM {t}
SELECT hex(255), hex('abc'), unhex('616263'), bin(5), conv('ff',16,10), md5('a'), sha1('a'), sha2('a',256), crc32('a'), base64('abc'), unbase64('YWJj')
SELECT format_number(1234567.891, 2), format_string('%d-%s', 3, 'x'), printf('%5.2f', 3.14159)
SELECT levenshtein('kitten','sitting'), soundex('Miller'), substring_index('a.b.c','.',2), find_in_set('b','a,b,c'), elt(2,'a','b')
SELECT round(2.5), round(-2.5), round(3.14159, 2), bround(2.5), round(2.5D), round(-2.5D), round(12345, -2), ceil(1.2), floor(-1.2), ceil(-1.5D)
SELECT round(dec, 1), round(f, 1), abs(i), sign(i), sqrt(i), exp(1), ln(10), log10(100), log2(8), log(10), log(2, 8), pow(2,10), cbrt(27) FROM {t} WHERE id IN (3,8)
SELECT sqrt(-1), ln(0), ln(-1), log10(0)
SELECT greatest(1, NULL, 3), least(1, NULL, 3), greatest(f, 1.0D), least(f, 1.0D) FROM {t}
SELECT coalesce(i, -1), nvl(i, 0), nvl2(i, 'a', 'b'), nullif(i, 5), ifnull(i, 9), if(i > 0, 'p', 'n'), isnull(i), isnotnull(i), nanvl(f, 0.0D), isnan(f) FROM {t}
SELECT case when i > 0 then 'p' when i < 0 then 'n' end, case i when 2 then 'two' else 'o' end, decode(i, 2, 'two', 'other') FROM {t}
SELECT i <=> NULL, NULL <=> NULL, i <=> 2, i IS DISTINCT FROM 2 FROM {t}
SELECT id FROM {t} WHERE i IN (2, NULL)
SELECT id FROM {t} WHERE i NOT IN (2, NULL)
SELECT id FROM {t} WHERE i NOT IN (SELECT w FROM {u})
SELECT id FROM {t} WHERE id IN (SELECT id FROM {u} WHERE w > 15)
SELECT id FROM {t} x WHERE EXISTS (SELECT 1 FROM {u} y WHERE y.id = x.id AND y.w IS NULL)
SELECT t.id FROM {t} t LEFT SEMI JOIN {u} u ON t.id = u.id
SELECT t.id FROM {t} t LEFT ANTI JOIN {u} u ON t.id = u.id
SELECT t.id, u.w FROM {t} t FULL OUTER JOIN {u} u ON t.id = u.w
SELECT * FROM (SELECT id, i FROM {t}) NATURAL JOIN (SELECT id, w FROM {u})
SELECT id, w FROM {t} JOIN {u} USING (id)
SELECT t.id FROM {t} t JOIN {u} u ON t.i <=> u.i
SELECT i FROM {t} EXCEPT SELECT i FROM {u}
SELECT i FROM {t} MINUS SELECT i FROM {u}
SELECT i FROM {t} INTERSECT SELECT i FROM {u}
SELECT i FROM {t} UNION SELECT i FROM {u}
SELECT i FROM {t} UNION ALL SELECT i FROM {u}
SELECT i FROM {t} EXCEPT ALL SELECT i FROM {u}
SELECT b, count(*), sum(i) FROM {t} GROUP BY ROLLUP(b)
SELECT b, s, count(*), grouping(b), grouping_id(b, s) FROM {t} GROUP BY CUBE(b, s)
SELECT b, count(*) FROM {t} GROUP BY b GROUPING SETS ((b), ())
SELECT b, count(*) c FROM {t} GROUP BY 1 HAVING c > 1
SELECT b, count(*) FILTER (WHERE i > 0), sum(DISTINCT i) FROM {t} GROUP BY ALL
SELECT sort_array(collect_list(i)), sort_array(collect_set(b)), size(collect_list(i)) FROM {t}
SELECT first(i), last(i), first(i, true), any_value(i) FROM (SELECT * FROM {t} WHERE id = 4)
SELECT first(i), first(i, true), first(i) IGNORE NULLS FROM (SELECT 4 AS o, CAST(NULL AS INT) AS i UNION ALL SELECT 4, CAST(NULL AS INT))
SELECT stddev(i), stddev_pop(i), variance(i), var_pop(i), skewness(i), kurtosis(i), corr(i, id), covar_pop(i, id) FROM {t}
SELECT percentile(i, 0.5), percentile_approx(i, 0.5), median(i), percentile_cont(0.5) WITHIN GROUP (ORDER BY i), percentile_disc(0.25) WITHIN GROUP (ORDER BY i) FROM {t}
SELECT percentile(i, array(0.25, 0.75)) FROM {t}
SELECT mode(id > 2), max_by(s, i), min_by(s, i), count_if(i > 0), bool_and(b), bool_or(b), every(b), some(b) FROM {t}
SELECT bit_and(id), bit_or(id), bit_xor(id), approx_count_distinct(id) FROM {t}
SELECT year(d), month(d), day(d), dayofweek(d), weekday(d), dayofyear(d), weekofyear(d), quarter(d), last_day(d) FROM {t}
SELECT hour(ts), minute(ts), second(ts), date_trunc('hour', ts), date_trunc('week', ts), trunc(d, 'month'), trunc(d, 'year') FROM {t}
SELECT extract(year FROM d), extract(second FROM ts), extract(dow FROM d), extract(week FROM d), date_part('day', d) FROM {t}
SELECT date_add(d, 3), date_sub(d, 3), d + 1, d - 1, d + INTERVAL 1 MONTH, ts + INTERVAL 2 HOURS, add_months(d, 1), datediff(d, DATE'2024-01-01'), months_between(d, DATE'2024-01-15') FROM {t}
SELECT d - DATE'2024-01-01' FROM {t}
SELECT ts - TIMESTAMP'2024-01-01 00:00:00' FROM {t}
SELECT date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS'), date_format(d, 'EEE, d MMM yy'), date_format(ts, 'hh:mm a'), date_format(d, 'D') FROM {t}
SELECT to_date('2024-03-01'), to_date('01/03/2024','dd/MM/yyyy'), to_timestamp('2024-03-01 10:11:12'), to_timestamp('01.03.2024 10','dd.MM.yyyy HH'), to_date('x')
SELECT unix_timestamp(ts), unix_timestamp('2024-01-01 00:00:00'), from_unixtime(0), from_unixtime(86400,'yyyy-MM-dd'), timestamp_seconds(5), timestamp_millis(5), unix_millis(ts), unix_date(d), date_from_unix_date(3) FROM {t}
SELECT next_day(d, 'MON'), make_date(2024,2,29), make_timestamp(2024,1,1,0,0,0), dayname(d), monthname(d) FROM {t}
SELECT timestampdiff(DAY, TIMESTAMP'2024-01-01 12:00:00', TIMESTAMP'2024-01-03 11:00:00'), timestampadd(HOUR, 3, TIMESTAMP'2024-01-01 00:00:00'), date_diff(DATE'2024-03-01', DATE'2024-02-01'), datediff(MONTH, DATE'2024-01-31', DATE'2024-02-29')
SELECT size(l), size(m), cardinality(l), array_contains(l, 2), array_max(l), array_min(l), array_distinct(l), array_position(l, 1), array_remove(l, 1), sort_array(l), sort_array(l, false), array_size(l) FROM {t}
SELECT l[0], l[5], element_at(l, 1), element_at(l, -1), try_element_at(l, 9), m['a'], m['zz'], element_at(m, 'a') FROM {t} WHERE size(l) > 0
SELECT get(l, 0), get(l, 9) FROM {t}
SELECT l[9] FROM {t}
SELECT slice(l, 1, 2), slice(array(1,2,3,4), -2, 2), array_join(array('a',NULL,'b'), ','), array_join(array('a',NULL,'b'), ',', '?'), flatten(array(array(1),array(2,3))), reverse(array(1,2)), concat(array(1),array(2)), array_union(array(1,2),array(2,3)), array_intersect(array(1,2),array(2,3)), array_except(array(1,2),array(2,3)), arrays_overlap(array(1),array(1,2)), array_repeat('a',2), sequence(1,5), sequence(5,1,-2) FROM {t}
SELECT sequence(DATE'2024-01-01', DATE'2024-03-01', INTERVAL 1 MONTH)
SELECT transform(l, x -> x + 1), filter(l, x -> x > 1), exists(l, x -> x > 2), forall(l, x -> x >= 0), aggregate(l, 0L, (a, x) -> a + coalesce(x, 0)), transform(l, (x, i) -> i), zip_with(array(1,2), array(3,4), (x,y) -> x+y) FROM {t}
SELECT map_keys(m), map_values(m), map_contains_key(m, 'a'), map_entries(m), map_from_arrays(array('a'),array(1)), map_concat(map('a',1),map('b',2)), str_to_map('a:1,b:2') FROM {t}
SELECT map_filter(m, (k, v) -> v > 3), transform_values(m, (k, v) -> v + 1) FROM {t}
SELECT st.x, st.y, named_struct('a', 1, 'b', 'x'), struct(id, s), named_struct('q', st).q.x FROM {t}
SELECT array(1,2,NULL), map('a',1), array('a')[0], struct(1,2).col1, map(1,2)[1], array(1,2) = array(1,2), struct(1) = struct(1)
SELECT get_json_object('{"a":{"b":1}}', '$.a.b'), get_json_object('{"a":"x"}', '$.a'), get_json_object('{"a":[1,2]}', '$.a[1]'), to_json(st), from_json('{"x":1}','x INT').x FROM {t}
SELECT typeof(1), typeof(1L), typeof(1.5), typeof('a'), typeof(date'2024-01-01')
SELECT 1 + '2', '3' * 2, '10' > 9, 'a' = 'A', true AND NULL, false OR NULL, NOT NULL
SELECT 2147483647 + 1
SELECT 9223372036854775807 + 1
SELECT cast(300 as tinyint)
SELECT i * 1000000000 FROM {t}
SELECT sum(id * 1000000000000000000) FROM {t}
SELECT 1 = 1.0, 0.1 + 0.2, 0.1D + 0.2D = 0.3D, 1e0, 5 / 2.0, 1.0/3
SELECT -i, +i, ~i, i & 3, i | 8, i ^ 1, shiftleft(i, 1), shiftright(i, 1) FROM {t}
SELECT 1 << 2, 5 >> 1, bit_count(7), getbit(5, 0)
SELECT * FROM VALUES (1,'a'),(2,'b') AS v(x,y)
SELECT * FROM range(5)
SELECT * FROM range(1,10,3)
SELECT id, i FROM {t} WHERE id BETWEEN 2 AND 4 ORDER BY i NULLS LAST
SELECT id FROM {t} ORDER BY i ASC, id DESC LIMIT 4 OFFSET 1
SELECT * EXCEPT (l, m, st) FROM {t} WHERE id = 3
SELECT t.* FROM {t} t WHERE t.id = 0
SELECT id AS a, a + 1 AS b2 FROM {t}
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r
SELECT * FROM (SELECT b, i FROM {t}) PIVOT (sum(i) FOR b IN (true, false))
SELECT * FROM (SELECT id, i, cast(id AS int) AS j FROM {t} WHERE id < 3) UNPIVOT (v FOR n IN (i, j))
SELECT x.id, y.c FROM {t} x, LATERAL (SELECT count(*) AS c FROM {u} u WHERE u.id < x.id) y
SELECT (SELECT max(w) FROM {u}), id FROM {t}
SELECT (SELECT w FROM {u} u WHERE u.id = t.id) FROM {t} t
SELECT id FROM {t} WHERE (id, i) IN (SELECT id, i FROM {u})
SELECT 'a' 'b', "dq", r'\n', 'it\'s', 'tab\there', x'1F', 0x1F
SELECT 'a\\b', 'é', length('\u00e9'), 'a%' LIKE 'a\%'
SELECT date'2024-01-01', timestamp'2024-01-01 01:02:03', interval 1 day, timestamp_ntz'2024-01-01 01:02:03'
SELECT current_date() = current_date(), now() IS NOT NULL, current_timestamp() IS NOT NULL, rand(1) IS NOT NULL, uuid() IS NOT NULL, current_user() IS NOT NULL
SELECT monotonically_increasing_id() IS NOT NULL, input_file_name() IS NOT NULL, spark_partition_id() FROM {t}
SELECT hash('a'), xxhash64('a'), crc32('abc')
SELECT width_bucket(5.3, 0.2, 10.6, 5), factorial(5), degrees(pi()), radians(180), atan2(1,1), e(), sin(0), hypot(3,4), rint(2.5), signum(-2), negative(3), positive(3)
SELECT nullif('', ''), length(''), '' = NULL, trim(BOTH 'x' FROM 'xax'), trim(LEADING 'x' FROM 'xax'), btrim(' a '), char_length('abc'), octet_length('é'), bit_length('a')
SELECT assert_true(true), raise_error('x')
SELECT b, max(s), min(s), max(d), min(ts), max(dec) FROM {t} GROUP BY b
SELECT s, count(*) FROM {t} GROUP BY s HAVING count(*) > 1 ORDER BY s
SELECT DISTINCT b FROM {t} ORDER BY b
SELECT count(*), count(i), count(DISTINCT b) FROM {t}
SELECT sum(i) FROM {t} WHERE false
SELECT max(i), count(*), avg(i), collect_list(i) FROM {t} WHERE false
SELECT string(1), int('3'), double('1.5'), bigint(3.9), date('2024-01-01'), boolean('true'), decimal('3.7')
SELECT ts::date, '3'::int, i::string FROM {t}
SELECT explode(array(1,2)) AS x, 'a' AS y
SELECT explode(sequence(1,3))
SELECT id, e FROM {t} LATERAL VIEW explode(split(s, ',')) x AS e
SELECT id, e FROM {t} CROSS JOIN LATERAL explode(l) AS x(e)
SELECT id, e.pos, e.col FROM {t}, LATERAL posexplode(l) AS e
SELECT date_trunc('month', d), date_trunc('QUARTER', ts), date_trunc('day', ts) FROM {t}
SELECT to_char(78.12, '99.9'), to_number('454', '999'), ceil(3.1411, 2), floor(3.1411, 2), bround(25, -1)
SELECT id FROM {t} WHERE s > 'B' AND s < 'b'
SELECT id FROM {t} WHERE d > '2024-05-01'
SELECT id FROM {t} WHERE ts < '2024-03-01 12:00:00'
SELECT id FROM {t} WHERE i = '2'
SELECT id FROM {t} WHERE b = 'true'
SELECT id FROM {t} WHERE dec = 3.33
SELECT id FROM {t} WHERE i > 1.5
SELECT id FROM {t} WHERE i = 'x'
SELECT t.id, u.id FROM {t} t LEFT JOIN {u} u ON t.id = u.id AND u.w > 15
SELECT t.id, u.w FROM {t} t RIGHT JOIN {u} u ON t.id = u.w
SELECT id FROM {t} t JOIN {u} u USING (id) WHERE u.w IS NOT NULL
SELECT t.id, u.id, id FROM {t} t FULL JOIN {u} u USING (id)
SELECT * FROM {u} a JOIN {u} b USING (id, i) JOIN {u} c USING (id)
SELECT * FROM {u} a LEFT SEMI JOIN {t} b USING (id)
SELECT a.id, b.id FROM {u} a, {u} b WHERE a.id = b.id + 1
SELECT a.id, b.x FROM {u} a CROSS JOIN (VALUES (1), (2)) AS b(x)
SELECT x.s, y.n FROM (SELECT s FROM {u}) x JOIN (SELECT s, count(*) AS n FROM {t} GROUP BY s) y ON x.s <=> y.s
WITH a AS (SELECT id, i FROM {t}), b AS (SELECT * FROM a WHERE i > 0) SELECT a.id FROM a JOIN b ON a.id = b.id
WITH a AS (SELECT 1 AS x), b AS (WITH a AS (SELECT 2 AS x) SELECT x FROM a) SELECT a.x, b.x FROM a, b
WITH a(p, q) AS (SELECT id, s FROM {u}) SELECT q, p FROM a
SELECT * FROM (SELECT * FROM (SELECT id FROM {u}) z) y
SELECT (SELECT count(*) FROM {t} t WHERE t.i > u.w) c, u.id FROM {u} u
SELECT id FROM {u} u WHERE w > (SELECT avg(w) FROM {u} v WHERE v.id <= u.id)
SELECT id FROM {u} u WHERE NOT EXISTS (SELECT 1 FROM {t} t WHERE t.i = u.w)
SELECT id, CASE WHEN id IN (SELECT id FROM {u}) THEN 'in' ELSE 'out' END FROM {t}
SELECT id FROM {t} WHERE id = ANY (SELECT id FROM {u})
SELECT count(*), count(1), count(i), sum(i), avg(i), min(s), max(d) FROM {t}
SELECT b, i % 2 AS odd, count(*) AS n FROM {t} GROUP BY b, odd
SELECT b, i % 2, count(*) FROM {t} GROUP BY 1, 2
SELECT upper(s), count(*) FROM {t} GROUP BY upper(s)
SELECT upper(s) || '!', count(*) FROM {t} GROUP BY upper(s)
SELECT year(d) y, month(d) m, sum(dec) FROM {t} GROUP BY year(d), month(d) ORDER BY y, m
SELECT b, sum(i) s FROM {t} GROUP BY b HAVING s > 20
SELECT b, sum(i) FROM {t} GROUP BY b HAVING sum(i) > 20 AND count(*) > 1
SELECT sum(i) FROM {t} HAVING count(*) > 100
SELECT b FROM {t} GROUP BY b ORDER BY count(*) DESC, b
SELECT b, sum(i) s FROM {t} GROUP BY b ORDER BY s DESC
SELECT b, count(*) c FROM {t} GROUP BY ALL ORDER BY ALL
SELECT b, s, count(*) FROM {t} GROUP BY b, s WITH ROLLUP
SELECT b, s, count(*) FROM {t} GROUP BY GROUPING SETS ((b, s), (b), ())
SELECT b, s, count(*) FROM {t} GROUP BY b, ROLLUP(s)
SELECT DISTINCT b, i % 2 FROM {t} ORDER BY b, (i % 2)
SELECT DISTINCT s FROM {t} ORDER BY s LIMIT 3
SELECT id FROM {t} ORDER BY b, id DESC
SELECT id, i AS k FROM {t} ORDER BY k DESC, id LIMIT 5
SELECT id + 1 AS id FROM {t} ORDER BY id LIMIT 3
SELECT i FROM {t} ORDER BY -i
SELECT id FROM {t} ORDER BY i NULLS LAST, id LIMIT 3 OFFSET 2
(SELECT id FROM {t} ORDER BY id LIMIT 2) UNION ALL (SELECT id FROM {u} ORDER BY id DESC LIMIT 1) ORDER BY id DESC
SELECT id, 'a' AS k FROM {u} UNION ALL SELECT i, s FROM {u} ORDER BY 1, 2
SELECT 1 AS a UNION SELECT 1.5 UNION SELECT 2L
SELECT CAST(NULL AS INT) a UNION ALL SELECT NULL UNION ALL SELECT 3
SELECT dec FROM {t} UNION ALL SELECT i FROM {t}
SELECT d FROM {t} UNION ALL SELECT ts FROM {t}
SELECT f FROM {t} INTERSECT SELECT f FROM {t}
SELECT id FROM {t} INTERSECT ALL SELECT id FROM {u}
SELECT a, b FROM (SELECT 1 AS a, 2 AS b) UNION ALL BY NAME SELECT 3 AS b, 4 AS a
SELECT id, sum(i) OVER (PARTITION BY b ORDER BY id) r, avg(i) OVER () a, count(*) OVER (PARTITION BY b) c FROM {t}
SELECT id, max(dec) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING), sum(dec) OVER (ORDER BY id), avg(dec) OVER (PARTITION BY b) FROM {t}
SELECT id, dense_rank() OVER w, row_number() OVER w FROM {t} WINDOW w AS (PARTITION BY b ORDER BY i DESC, id)
SELECT id, lag(s) IGNORE NULLS OVER (ORDER BY id), first_value(i) IGNORE NULLS OVER (ORDER BY id), last(i, true) OVER (ORDER BY id) FROM {t}
SELECT id, nth_value(i, 2) OVER (ORDER BY id), lead(i) OVER (ORDER BY id DESC), lag(i, 3, 0) OVER (ORDER BY id) FROM {t}
SELECT * FROM (SELECT id, b, row_number() OVER (PARTITION BY b ORDER BY i DESC, id) rn FROM {t}) WHERE rn = 1
SELECT id FROM {t} QUALIFY row_number() OVER (PARTITION BY b ORDER BY id DESC) = 1
SELECT b, sum(sum(i)) OVER (ORDER BY b) FROM {t} GROUP BY b
SELECT id, sum(i) OVER (ORDER BY id RANGE BETWEEN 2 PRECEDING AND CURRENT ROW) FROM {t}
SELECT id, collect_list(i) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM {t}
SELECT id, count(DISTINCT b) FROM {t} GROUP BY id
SELECT max_by(s, i), min_by(id, f) FROM {t}
SELECT approx_count_distinct(s), count(DISTINCT s, b), percentile_approx(i, array(0.1, 0.9)), mode(id > 2) FROM {t} WHERE id < 9
SELECT corr(i, id), covar_samp(i, id), stddev(i) FROM {t} WHERE id < 1
SELECT stddev(i), variance(i), stddev_pop(i) FROM {t} WHERE id = 0
SELECT bool_and(i > 0), any(i > 5), every(b), some(b), count_if(b) FROM {t}
SELECT string_agg(s, ',') WITHIN GROUP (ORDER BY s), listagg(s) WITHIN GROUP (ORDER BY s DESC) FROM {t}
SELECT sum(DISTINCT i), avg(DISTINCT i), collect_set(i % 2) FROM {t} WHERE i > 0 AND i % 2 = 0
SELECT sum(f), avg(f), max(f), min(f), count(f) FROM {t} WHERE id IN (3,4,8,9)
SELECT sum(i) + count(*), sum(i) / count(*), avg(i) * 2, max(i) - min(i) FROM {t}
SELECT sum(dec) / 3, sum(dec) * 2.5, avg(dec) + 1, sum(dec * dec), sum(dec) / count(*), sum(dec) / sum(i) FROM {t}
SELECT dec + 1.5, dec - i, dec * 1.005, dec / 1.5, dec / dec, dec % 2, -dec, abs(dec), round(dec, 1), dec * id FROM {t} WHERE id > 0 AND id <> 3
SELECT CAST(12345678901234567890123456789012345678 AS DECIMAL(38,0)) + 1, CAST(1 AS DECIMAL(38,18)) * CAST(3 AS DECIMAL(38,18)), CAST(2 AS DECIMAL(38,10)) / CAST(3 AS DECIMAL(38,10)), 1 / CAST(3 AS DECIMAL(10,5))
SELECT CAST(99999999.99 AS DECIMAL(10,2)) * CAST(99999999.99 AS DECIMAL(10,2)), CAST(999999999999.9999 AS DECIMAL(16,4)) * CAST(999999999999.9999 AS DECIMAL(16,4))
SELECT sum(CAST(99999999999999.99 AS DECIMAL(16,2)) * CAST(99999999999999.99 AS DECIMAL(16,2))) FROM {t}
SELECT 1.10 = 1.1, 1.5 > 1, 2.0 = 2, 0.1 + 0.2 = 0.3, 3.0 / 2, 10 / 4, 1e2 + 1, 5 % 3.5, 1.0D * 3
SELECT CASE WHEN i > 0 THEN 1.5 ELSE i END, CASE WHEN b THEN d ELSE ts END, coalesce(dec, i), coalesce(i, 1.5D), nullif(i, 2) FROM {t}
SELECT CASE WHEN b THEN 'x' ELSE 1 END FROM {t}
SELECT if(b, i, id), ifnull(s, 'none'), nvl(d, DATE'2000-01-01'), greatest(i, id), least(i, 3, id) FROM {t}
SELECT i = '5', id > '3', d = '2024-03-08', dec = '1.11', '5' IN (5, 6), s = 5 IS NULL FROM {t} WHERE id < 2
SELECT d BETWEEN '2024-03-01' AND '2024-06-30', ts >= '2024-03-01', ts >= DATE'2024-03-01', d >= TIMESTAMP'2024-03-08 00:00:00' FROM {t}
SELECT ts + INTERVAL 1 DAY, ts - INTERVAL 90 MINUTES, d + INTERVAL 2 WEEKS, d - INTERVAL 1 YEAR, date_add(d, -3), d + 7, d - 7 FROM {t}
SELECT date_add(DAY, 2, d), dateadd(MONTH, 1, ts), datediff(HOUR, TIMESTAMP'2024-01-01 00:30:00', TIMESTAMP'2024-01-01 03:00:00'), datediff(YEAR, DATE'2020-06-01', DATE'2024-05-31'), timestampdiff(MONTH, DATE'2024-03-31', DATE'2024-02-29'), datediff(WEEK, d, DATE'2024-12-31'), timestampdiff(SECOND, ts, TIMESTAMP'2024-03-01 00:00:00') FROM {t}
SELECT date_trunc('MONTH', ts), date_trunc('hour', d), trunc(d, 'YEAR'), trunc(d, 'quarter'), last_day(d), next_day(d, 'Friday'), make_date(2023, 2, 28), add_months(d, -1) FROM {t}
SELECT months_between(d, DATE'2024-02-29'), months_between(ts, TIMESTAMP'2024-01-15 10:30:00'), months_between(DATE'2024-03-31', DATE'2024-02-29') FROM {t}
SELECT unix_timestamp(ts), unix_timestamp('2024-05-01', 'yyyy-MM-dd'), to_unix_timestamp('2024-05-01 01:02:03'), from_unixtime(1700000000), from_unixtime(0, 'yyyy'), to_timestamp('2024-01-01'), to_date('20240105', 'yyyyMMdd') FROM {t}
SELECT dayofweek(d), weekday(d), weekofyear(d), dayofyear(d), dayname(d), monthname(d), quarter(d), extract(YEAR FROM ts), extract(DAYOFWEEK FROM d), date_part('MONTH', d) FROM {t}
SELECT date_format(ts, 'yyyy/MM/dd'), date_format(ts, 'HH:mm'), date_format(d, 'MMMM d, yyyy'), date_format(ts, "yyyy-MM-dd'T'HH:mm:ss") FROM {t}
SELECT substring(s, 2), substring(s, -3, 2), substr(s, 1, 100), left(s, 0), right(s, 2), s[0] FROM {t}
SELECT trim(s), ltrim(s), length(s), reverse(s), repeat(s, 2), replace(s, 'a', 'b'), translate(s, 'an', 'xy'), lpad(s, 4, '.'), rpad(s, 8, 'ab'), upper(s), lower(s) FROM {t}
SELECT concat(s, 1), concat(s, d), concat_ws('|', s, i, d), s || i || d, concat(f, ''), string(f) FROM {t}
SELECT regexp_replace(s, '([a-z])([a-z])', '$2$1'), regexp_extract(s, '(\\w+)', 1), s RLIKE 'an', regexp_extract_all(s, '(a.)', 1), regexp_count(s, 'a'), split(s, 'a') FROM {t}
SELECT initcap('hello wORLD foo'), ascii(s), ascii(''), chr(97), char(0) = '', space(2), substring_index('a.b.c', '.', -2), find_in_set('c', 'a,b,c'), locate('b', 'abcb', 3), instr('abc', 'c'), elt(1, 'x', 'y'), levenshtein('abc', 'adc'), base64('hi'), unbase64('aGk='), md5('x'), octet_length('é') FROM {t}
SELECT get_json_object('{"a":{"b":[1,2,{"c":"x"}]}, "n": 1.50, "t": true, "z": null}', '$.a.b[2].c'), get_json_object('{"n": 1.50}', '$.n'), get_json_object('{"t": true}', '$.t'), get_json_object('{"z": null}', '$.z'), get_json_object('nope', '$.a'), get_json_object('{"a": {"b": 1}}', '$.a'), get_json_object('{"a": [1, 2]}', '$.a')
SELECT size(l), size(m), array_contains(l, 1), l[0] IS NULL FROM {t} WHERE size(l) > 0
SELECT element_at(l, 1), try_element_at(l, 5), get(l, 1), array_max(l), array_min(l), sort_array(l, false), array_distinct(l), array_join(transform(l, x -> string(x)), '-'), slice(l, 1, 1), array_position(l, 1), array_remove(l, 1), array_union(l, array(9L)), array_except(l, array(0L)), array_intersect(l, array(0L, 1L)), arrays_overlap(l, array(1L)), array_repeat(id, 2), flatten(array(l, l)), concat(l, l), reverse(l), array_compact(l), cardinality(l) FROM {t} WHERE size(l) > 0
SELECT m['a'], element_at(m, 'b'), map_keys(m), map_values(m), map_entries(m), map_contains_key(m, 'a'), map_from_arrays(array('k'), array(id)), map_filter(m, (k, v) -> k = 'a'), transform_values(m, (k, v) -> coalesce(v, 0) * 2), size(map_keys(m)) FROM {t}
SELECT aggregate(l, 0L, (acc, x) -> acc + coalesce(x, 0), acc -> acc * 10), exists(l, x -> x IS NULL), forall(l, x -> x > -1), filter(l, (x, i) -> i > 0), transform(l, x -> struct(x, x * 2)), zip_with(l, l, (a, b) -> a * b) FROM {t}
SELECT struct(id, s).id, named_struct('a', id).a, struct(id AS k).k, st.*, st.x + 1 FROM {t}
SELECT id, x.a FROM (SELECT id, named_struct('a', i, 'b', s) AS x FROM {t})
SELECT id, e FROM {t} LATERAL VIEW explode(l) AS e WHERE e > 0
SELECT id, a, b FROM {t} LATERAL VIEW explode(array(1, 2)) x AS a LATERAL VIEW explode(array(a, 10)) y AS b WHERE id < 2
SELECT id, c FROM {t} LATERAL VIEW OUTER explode(l) x AS c WHERE id < 4
SELECT count(*) FROM {t} LATERAL VIEW explode(l) x AS c
SELECT c, count(*) FROM {t} LATERAL VIEW explode(l) x AS c GROUP BY c
SELECT id, posexplode(l) AS (p, v) FROM {t}
SELECT id, explode_outer(m) FROM {t}
SELECT id, inline_outer(array(st, named_struct('x', 9L, 'y', 'n'))) FROM {t}
SELECT explode(map('a', 1, 'b', 2)) AS (k, v)
SELECT * FROM explode(array(10, 20)) AS t(x)
SELECT * EXCEPT (l, m, st, ts, f, dec, d) FROM {t}
SELECT u.*, t.b FROM {u} u JOIN {t} t ON u.id = t.id
SELECT u.* EXCEPT (w) FROM {u} u
SELECT id AS `a b`, i AS `x``y` FROM {u}
SELECT ID, U.W FROM {u} U
SELECT nope FROM {t}
SELECT t.nope FROM {t} t
SELECT id FROM {t} a JOIN {u} b ON a.id = b.id
SELECT b, i FROM {t} GROUP BY b
SELECT sum(i) FROM {t} WHERE sum(i) > 1
SELECT sum(sum(i)) FROM {t}
SELECT id FROM {t} LIMIT -1
SELECT id FROM {t} ORDER BY 5
SELECT * FROM {t} WHERE id
SELECT s + 1 FROM {t}
SELECT CAST('x' AS INT) FROM {t}
SELECT CAST(1000 AS TINYINT)
SELECT 9223372036854775807 + id FROM {t}
SELECT CAST(s AS INT) FROM {t}
SELECT TRY_CAST(s AS INT), TRY_CAST('12' AS BIGINT), TRY_CAST(f AS INT), CAST(b AS INT), CAST(i AS BOOLEAN), CAST(d AS STRING), CAST('2024-01-02' AS DATE), CAST(i AS DECIMAL(10,2)), CAST(dec AS DOUBLE), CAST(dec AS INT), CAST('1.25' AS DECIMAL(5,1)), CAST(1.25 AS DECIMAL(5,1)), CAST(id AS TIMESTAMP), CAST(s AS BINARY) FROM {t} WHERE id NOT IN (0, 6, 7, 10)
SELECT (1, 'a'), (1, 'a').col2, struct(1) = struct(1), array(1, 2) = array(1, 2), array(1) < array(2)
SELECT NULL, NULL = 1, NULL AND false, NULL OR true, NOT NULL, coalesce(NULL, NULL), NULL IS NULL, 1 IN (NULL, 1), 2 NOT IN (NULL, 1)
SELECT true, false, true AND false, NOT true, true = 1, 'true' = true, b = true, b IS NOT TRUE, b IS FALSE FROM {t}
SELECT -5 % 3, 5 % -3, -5 / 2, -7 div 2, pmod(-5, 3), pmod(5, -3), 2 * 3 + 4, 2 + 3 * 4, (2 + 3) * 4, - - 3, +3, 7 & 3, 7 | 8, 7 ^ 2, ~7
SELECT abs(-3), sign(-2.5), floor(2.7), ceil(2.1), round(2.45, 1), round(-2.5), exp(0), ln(1), log10(1000), log2(8), sqrt(2), pow(2, 0.5), cbrt(8), sin(0), degrees(0), hypot(3, 4), rint(3.5), shiftleft(1, 4), shiftright(-8, 1), bit_count(255), hex(17), hex('A'), unhex('41'), bin(10)
SELECT current_date = current_date(), year(now()) > 2000, current_timestamp > TIMESTAMP'2020-01-01'
SELECT id, rand() < 1, uuid() IS NOT NULL FROM {u}
SELECT * FROM {u} TABLESAMPLE (100 PERCENT)
SELECT /*+ BROADCAST(u) */ t.id FROM {t} t JOIN {u} u ON t.id = u.id
SELECT id FROM {u} DISTRIBUTE BY id SORT BY id
SELECT id FROM {u} CLUSTER BY id
FROM {u} SELECT id, w
SELECT id -- comment
SELECT a.b.c FROM (SELECT named_struct('b', named_struct('c', 5)) AS a)
SELECT a[0].x, a.x FROM (SELECT array(named_struct('x', 1), named_struct('x', 2)) AS a)
SELECT max(named_struct('a', i, 'b', id)), min(array(i, 1)) FROM {t} WHERE i IS NOT NULL
SELECT ts, max(ts), min(d) FROM {t} GROUP BY ts HAVING ts IS NOT NULL
SELECT ts FROM {t} WHERE ts = TIMESTAMP'2024-03-01 13:59:58.123456' OR ts IS NULL
SELECT ts FROM {t} WHERE ts IN (TIMESTAMP'2024-03-01 13:59:58.123456') ORDER BY ts
SELECT CAST(ts AS TIMESTAMP_NTZ), CAST(CAST(ts AS TIMESTAMP_NTZ) AS TIMESTAMP), max(CAST(ts AS TIMESTAMP_NTZ)) OVER () FROM {t}
SELECT array(ts), named_struct('t', ts), map('t', ts) FROM {t}
SELECT count(DISTINCT ts), count(DISTINCT f), count(DISTINCT d) FROM {t}
SELECT id, f FROM {t} WHERE f > 0 OR isnan(f)
SELECT f = CAST('NaN' AS DOUBLE), f > 1, f <=> NULL, f < CAST('Infinity' AS DOUBLE), -f, f + 1, f * 0, nanvl(f, -1), abs(f), floor(f) FROM {t} WHERE id NOT IN (6, 7, 10)
SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY i DESC), percentile_disc(0.5) WITHIN GROUP (ORDER BY id), median(f), percentile(dec, 0.3) FROM {t} WHERE id > 2 AND id < 9
SELECT string(DATE'2024-01-01'), string(TIMESTAMP'2024-01-01 00:00:00'), string(1.10), string(true), string(2.0D), string(1e-7D), string(CAST(1.1 AS FLOAT)), string(123456789.125D), string(-0.0001234D), string(1e22D)
SELECT decode(i, 2, 'two', 5, 'five', 'other'), decode(NULL, NULL, 'n', 'x'), nvl2(s, 1, 2.5), equal_null(i, 2) FROM {t}
SELECT try_add(2147483647, 1), try_divide(1, 0), try_subtract(1, 2), try_multiply(3, 4), try_mod(5, 0), try_add(dec, 1), try_divide(dec, 0) FROM {t}
SELECT sequence(1, 3), sequence(3, 1), sequence(1, 10, 4), array(1, 2.5), array('a', NULL), map('a', 1, 'b', 2.5), array(array(1), array(2, 3)), size(array()), array(NULL)
SELECT * FROM (SELECT b, id % 3 AS k, i FROM {t}) PIVOT (sum(i) AS s, count(*) AS c FOR k IN (0 AS zero, 1, 2))
SELECT * FROM (SELECT b, s, i FROM {t}) PIVOT (max(i) FOR s IN ('apple', 'Banana' AS ban))
SELECT b, x FROM (SELECT b, id % 3 AS k, i FROM {t}) PIVOT (count(i) FOR k IN (0 AS x, 7 AS y)) ORDER BY b
SELECT * FROM {u} UNPIVOT (v FOR n IN (id, w))
SELECT * FROM {u} UNPIVOT INCLUDE NULLS (v FOR n IN (id AS `the id`, w)) AS p WHERE v > 3
SELECT corr(i, 1), corr(1, i), covar_pop(i, 1) FROM {t}
SELECT CAST(id AS STRING) || 'x', cast(st.x as string), st.x FROM {t}
SELECT st.x % 3 k, sort_array(collect_list(st.y)) FROM {t} GROUP BY 1
SELECT id, u.* FROM {t} t, LATERAL (SELECT max(w) AS m FROM {u} u WHERE u.id < t.id) u WHERE t.id < 4
SELECT * FROM (SELECT id, i FROM {t}) FULL JOIN (SELECT w AS id, s FROM {u}) USING (id)
SELECT id + 1, count(*) FROM (SELECT id, i FROM {t}) a FULL JOIN (SELECT w AS id, s FROM {u}) b USING (id) GROUP BY id + 1
SELECT * FROM (SELECT id FROM {t}) a FULL JOIN (SELECT w AS id FROM {u}) b USING (id) FULL JOIN (SELECT i AS id FROM {t}) c USING (id)
SELECT * FROM (SELECT id, i FROM {t}) a NATURAL FULL JOIN (SELECT w AS id, s FROM {u}) b WHERE id > 5 ORDER BY id
SELECT * FROM (SELECT ts FROM {t}) a FULL JOIN (SELECT d AS ts FROM {t}) b USING (ts)
SELECT * FROM {u} a RIGHT JOIN (SELECT w AS id FROM {u}) b USING (id)
SELECT x.k, y.k, z.v FROM (SELECT id AS k FROM {u}) x LEFT JOIN (SELECT i AS k FROM {u}) y ON x.k = y.k CROSS JOIN (SELECT max(w) AS v FROM {u}) z
SELECT (SELECT max(w) FROM {u}) AS m, b, count(*) FROM {t} GROUP BY b
SELECT b, (SELECT count(*) FROM {u} u WHERE u.i = t.i) AS c FROM {t} t WHERE EXISTS (SELECT 1 FROM {u} u WHERE u.id = t.id AND u.w > 10)
SELECT count(2), count(NULL), count(i + 1), count(*) FILTER (WHERE i > 100) FROM {t}
SELECT id FROM {t} WHERE CASE WHEN b THEN i > 0 ELSE id > 5 END
SELECT id FROM {t} WHERE b AND NOT (i > 3 OR s LIKE 'a%') OR i IS NULL
SELECT sum(CASE WHEN b THEN dec * (1 - dec) ELSE 0 END), sum(if(b, 1, 0)) FROM {t}
WITH RECURSIVE r AS (SELECT 1L AS n, CAST('a' AS STRING) AS s UNION ALL SELECT n + 1, s || 'b' FROM r WHERE n < 4) SELECT * FROM r
SELECT a.id, b.x FROM {u} a LEFT JOIN LATERAL (SELECT a.id * 10 AS x WHERE a.id > 2) b
SELECT id, x FROM {u} LATERAL VIEW explode(split(s, 'a')) AS x
SELECT DISTINCT f + 0, b FROM {t}
SELECT min(s) OVER (PARTITION BY b), id FROM {t} WHERE s IS NOT NULL
SELECT id, rank() OVER (ORDER BY dec / 2) r FROM {t}
SELECT id, rank() OVER (PARTITION BY i % 2, id / 4 ORDER BY dec / (id + 1) DESC, id) r FROM {t}
SELECT i % 3 k, rank() OVER (ORDER BY sum(dec) / count(*)) r FROM {t} GROUP BY i % 3
SELECT id, sum(id) OVER (ORDER BY CAST(CAST(id AS STRING) AS INT)) r FROM {t}
SELECT id, rank() OVER (ORDER BY 1 / id) r FROM {t}
SELECT id, rank() OVER (PARTITION BY id / 2 ORDER BY id, 1 / (id - 3)) r FROM {t}
SELECT id, rank() OVER (ORDER BY CAST(s AS INT)) r FROM {t}
SELECT id FROM {t} QUALIFY row_number() OVER (PARTITION BY b ORDER BY dec / 3 DESC NULLS LAST, id) = 1
SELECT array(1, NULL) < array(1, 2), array(1, NULL) > array(1, 2), struct(1, NULL) < struct(1, 2), struct(NULL, 1) = struct(NULL, 1), array(array(NULL)) < array(array(1))
SELECT id FROM {t} ORDER BY struct(dec, id)
SELECT id FROM {t} ORDER BY struct(dec, id) DESC
SELECT struct(dec, id) AS k FROM {t} ORDER BY k
SELECT DISTINCT struct(i, s) AS k FROM {t} ORDER BY 1 DESC
SELECT id FROM {t} ORDER BY l, id
SELECT id FROM {t} ORDER BY array(f), id
SELECT min(struct(dec, id)), max(struct(i, id)), min(struct(i, s)), max(struct(f)), min(struct(f)), max(array(i, id)), min(array(f)), max(l), min(l) FROM {t}
SELECT max(named_struct('a', named_struct('b', i))), max_by(id, struct(i, s)), min_by(id, struct(i, s)), max_by(id, l) FROM {t}
SELECT b, max(struct(dec, s)).s FROM {t} GROUP BY b
SELECT id, max(struct(i, id)) OVER (PARTITION BY b) FROM {t}
SELECT id, rank() OVER (ORDER BY struct(i, s)) FROM {t}
SELECT array_max(array(struct(1, NULL), struct(1, 0))), array_min(array(struct(1, NULL), struct(1, 0))), array_max(array(array(1), array(NULL))), sort_array(array(array(2), array(NULL), array(1)), false)
SELECT sort_array(collect_list(struct(dec, id))) FROM {t}
SELECT sort_array(collect_list(struct(dec, id)), false) FROM {t}
SELECT id FROM {t} WHERE l < array(0L, NULL)
SELECT id FROM {t} WHERE l >= array(0L)
SELECT ceil(dec), floor(dec), ceil(CAST(1.5 AS DECIMAL(38, 2))), ceil(CAST(9.99 AS DECIMAL(3, 2))), ceiling(CAST(1 AS DECIMAL(5, 0))), round(-0.4D), round(f) FROM {t}
SELECT b, count(*) FROM {t} WHERE id > 100 GROUP BY ROLLUP (b)
SELECT b, count(*) FROM {t} WHERE id > 100 GROUP BY b WITH CUBE
SELECT count(*) FROM {t} WHERE id > 100 GROUP BY GROUPING SETS (())
SELECT count(*) FROM {t} WHERE id > 100 GROUP BY GROUPING SETS ((b), ())
SELECT b, i, count(*), sum(id) FROM {t} GROUP BY CUBE (b, i) HAVING count(*) > 1
SELECT b, count(*) FROM {t} GROUP BY -1, b
SELECT b, count(*) FROM {t} GROUP BY 3
SELECT id FROM {t} ORDER BY -1
SELECT id FROM {t} ORDER BY 'x', id DESC
SELECT id FROM {t} ORDER BY NULL, 1 + 1, id DESC
SELECT space(CAST(NULL AS INT)), space(i), array_repeat(1, CAST(NULL AS INT)), array_repeat(i, i), repeat(s, i), lpad(s, i, 'x'), rpad(s, i), left(s, i), right(s, i), left('abc', CAST(NULL AS INT)), right('abc', CAST(NULL AS INT)), repeat('a', CAST(NULL AS INT)), lpad('a', CAST(NULL AS INT)) FROM {t} WHERE i IS NULL OR i < 9
SELECT locate('', s, 2), locate('', s, 0), locate('a', s, i), locate('b', s, CAST(NULL AS INT)), locate(CAST(NULL AS STRING), s, CAST(NULL AS INT)), locate(CAST(NULL AS STRING), s, 1) FROM {t}
SELECT array_join(array('a', NULL), ',', s), array_join(array('a', NULL), s), array_join(array('a', NULL), ',', CAST(NULL AS STRING)) FROM {t}
SELECT bit_count(-1), bit_count(i), bit_count(CAST(-1 AS TINYINT)), bit_count(-1L) FROM {t}
SELECT typeof(ts), typeof(CAST(ts AS TIMESTAMP_NTZ)), typeof(array(CAST(ts AS TIMESTAMP_NTZ))), typeof(st), typeof(dec * 2), typeof(d + 1), typeof(NULL) FROM {t}
SELECT typeof(struct(ts, CAST(ts AS TIMESTAMP_NTZ))) FROM {t}
SELECT timestampadd(DAY, 1, CAST(ts AS TIMESTAMP_NTZ)), dateadd(HOUR, id, CAST(ts AS TIMESTAMP_NTZ)), timestampadd(HOUR, 1, d), timestampadd(HOUR, 1, ts), timestampadd(DAY, i, ts) FROM {t}
SELECT substring_index('a.b.c', s, 2), substring_index(s, left(s, 1), -1), array_join(array(s, 'x', NULL), s), array_join(slice(array('a'), 1, 0), s) FROM {t}
SELECT CAST(CAST(0.25 AS DECIMAL(2,2)) AS STRING), CAST(CAST(-0.25 AS DECIMAL(2,2)) AS STRING), CAST(CAST(0 AS DECIMAL(2,2)) AS STRING), CAST(0.0000001 AS STRING), concat('x', 0.50, CAST(dec / 1000 AS DECIMAL(4,4))), concat_ws(',', s, 0.5), TRY_CAST(CAST(0.5 AS DECIMAL(38,38)) AS STRING), CAST(0.10 AS STRING) = '0.10' FROM {t}
SELECT posexplode(m) FROM {t}
SELECT id, x.* FROM {t} LATERAL VIEW OUTER posexplode(m) x AS p, k, v
SELECT to_timestamp_ntz('2024-01-01'), to_timestamp_ntz(ts), array(to_timestamp_ntz(s)), to_timestamp_ntz(d) + INTERVAL 1 DAY, typeof(localtimestamp()), coalesce(to_timestamp_ntz(ts), ts) FROM {t} WHERE s IS NULL
-- averages and quotients of decimals
SELECT avg(-dec), avg(dec * dec), avg(CAST(dec AS DECIMAL(18,0))), avg(CAST(dec AS DECIMAL(18,9))), avg(CAST(dec AS DECIMAL(38,10))), avg(CAST(dec AS DECIMAL(38,33))), avg(CAST(dec AS DECIMAL(38,35))), avg(CAST(dec / 1000 AS DECIMAL(36,36))), avg(CAST(dec / 1000 AS DECIMAL(37,37))) FROM {t}
SELECT avg(DISTINCT dec), avg(DISTINCT CAST(dec AS DECIMAL(36,12))) FROM {t}
SELECT i % 2 k, avg(dec) a, avg(-dec) FILTER (WHERE id > 3) f, avg(dec) FILTER (WHERE id > 100) n, avg(dec * 1000000000) big FROM {t} GROUP BY i % 2
SELECT id, avg(-dec) OVER (ORDER BY id), avg(dec) OVER (ORDER BY id ROWS BETWEEN 3 FOLLOWING AND 4 FOLLOWING) FROM {t}
SELECT avg(x), avg(-x) FROM VALUES (9999999999999999999999999999999999BD), (1BD), (2BD) v(x)
SELECT avg(x), avg(-x) FROM VALUES (999999999999999999999999999999999.25BD), (0.5BD) v(x)
SELECT avg(x), avg(-x) FROM VALUES (99999999999.99BD), (99999999999.98BD) v(x)
SELECT avg(x), avg(-x) FROM VALUES (0.01BD), (0.02BD), (0.02BD) v(x)
SELECT avg(x), avg(-x) FROM VALUES (0.000001BD), (0.000000BD) v(x)
SELECT CAST(9999999999999999.99 AS DECIMAL(18,2)) / CAST(3 AS DECIMAL(5,2)), CAST(99999999999999999 AS DECIMAL(18,1)) / 7, dec / 7.0, dec / 0.5, -dec / 3, dec / -1.5, (dec - 5) / 0.7, CAST(dec AS DECIMAL(38,2)) / 3.0 FROM {t}
SELECT 1.0 / 0, 1.0 % 0, dec / 0.0, try_divide(1.0, 0), try_divide(dec, 0.00), try_divide(dec, 3.0) FROM {t}
