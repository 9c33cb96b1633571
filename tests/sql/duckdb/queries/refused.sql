SELECT cast(l as string) FROM {t}
SELECT cast(m as string) FROM {t}
SELECT cast(st as string) FROM {t}
SELECT initcap(s) FROM {t}
SELECT split('a1b2', '[0-9]') FROM {t}
SELECT split('a,b,c', ',', 2) FROM {t}
SELECT overlay('abcdef' PLACING 'XX' FROM 2 FOR 3) FROM {t}
SELECT conv('ff',16,10)
SELECT crc32('a')
SELECT format_number(1234567.891, 2)
SELECT format_string('%d-%s', 3, 'x')
SELECT soundex('Miller')
SELECT bround(2.5)
SELECT round(12345, -2)
SELECT skewness(i) FROM {t}
SELECT d - DATE'2024-01-01' FROM {t}
SELECT ts - TIMESTAMP'2024-01-01 00:00:00' FROM {t}
SELECT date_format(d, 'D') FROM {t}
SELECT sequence(DATE'2024-01-01', DATE'2024-03-01', INTERVAL 1 MONTH)
SELECT map_concat(map('a',1),map('b',2)) FROM {t}
SELECT str_to_map('a:1,b:2') FROM {t}
SELECT to_json(st) FROM {t}
SELECT from_json('{"x":1}','x INT').x FROM {t}
SELECT getbit(5, 0)
SELECT interval 1 day
SELECT rand(1) IS NOT NULL
SELECT current_user() IS NOT NULL
SELECT monotonically_increasing_id() IS NOT NULL FROM {t}
SELECT input_file_name() IS NOT NULL FROM {t}
SELECT spark_partition_id() FROM {t}
SELECT hash('a')
SELECT xxhash64('a')
SELECT crc32('abc')
SELECT width_bucket(5.3, 0.2, 10.6, 5)
SELECT factorial(5)
SELECT assert_true(true)
SELECT to_char(78.12, '99.9')
SELECT to_number('454', '999')
SELECT ceil(3.1411, 2)
SELECT floor(3.1411, 2)
SELECT bround(25, -1)
SELECT * FROM {u} TABLESAMPLE (100 PERCENT)
SELECT size(array())
SELECT cast(0.1f as string)
SELECT string(CAST(1.1 AS FLOAT))
SELECT typeof(struct(ts, CAST(ts AS TIMESTAMP_NTZ))) FROM {t}
