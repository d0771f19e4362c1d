package peers;

import java.time.ZoneOffset;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.utils.DataTypeUtils;

/** The queries as somebody writes them who knows SQL: windows, interval joins and rankings that Flink has built in. */
final class Sql {
    static void build(StreamExecutionEnvironment env, String query, String in, String out) {
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().setLocalTimeZone(ZoneOffset.UTC);
        Schema schema =
                Schema.newBuilder()
                        .fromRowDataType(Columns.of(query))
                        .columnByMetadata("rowtime", DataTypes.TIMESTAMP_LTZ(3))
                        .watermark("rowtime", "SOURCE_WATERMARK()")
                        .build();
        DataStream<RowData> rows = Files.source(env, Columns.type(query), in);
        tables.createTemporaryView("input", tables.fromDataStream(rows, schema));
        Table result = tables.sqlQuery(of(query));
        DataType type = DataTypeUtils.toInternalDataType(result.getResolvedSchema().toPhysicalRowDataType());
        DataStream<RowData> found = tables.toDataStream(result, type);
        Files.sink(found, (RowType) type.getLogicalType(), out);
    }

    private static String of(String query) {
        return switch (query) {
            case "heavy-callers" -> means("src", "'1' MINUTE", "'1' HOUR");
            case "district" -> means("district", "'10' SECOND", "'60' SECOND");
            case "cdr-join" ->
                    """
                    SELECT * FROM (
                        SELECT a.src, a.`start`, b.`start` AS start_right,
                            2 * 6371.0E0 * ASIN(SQRT(
                                POWER(SIN((RADIANS(b.lat) - RADIANS(a.lat)) / 2), 2)
                                + COS(RADIANS(a.lat)) * COS(RADIANS(b.lat)) * POWER(SIN((RADIANS(b.lon) - RADIANS(a.lon)) / 2), 2)
                            )) AS km
                        FROM input a JOIN input b ON a.src = b.src AND a.`start` < b.`start`
                            AND b.rowtime BETWEEN a.rowtime - INTERVAL '60' SECOND AND a.rowtime + INTERVAL '60' SECOND
                    ) WHERE km < 500
                    """;
            case "clickstream" ->
                    """
                    WITH pages AS (
                        SELECT session, rowtime,
                            CASE WHEN page LIKE '%.html' THEN LOWER(SUBSTRING(page FROM 1 FOR CHAR_LENGTH(page) - 5)) ELSE LOWER(page) END AS page
                        FROM input WHERE page NOT LIKE '%.png'
                    ), steps AS (
                        SELECT rowtime, page,
                            LAG(page, 1) OVER (PARTITION BY session ORDER BY rowtime) AS page1,
                            LAG(page, 2) OVER (PARTITION BY session ORDER BY rowtime) AS page2,
                            LAG(page, 3) OVER (PARTITION BY session ORDER BY rowtime) AS page3,
                            LAG(page, 4) OVER (PARTITION BY session ORDER BY rowtime) AS page4
                        FROM pages
                    ), patterns AS (
                        SELECT rowtime, CONCAT_WS(' > ', page4, page3, page2, page1, page) AS `pattern` FROM steps WHERE page4 IS NOT NULL
                    ), counts AS (
                        SELECT window_start, window_end, `pattern`, COUNT(*) AS `count`
                        FROM TABLE(TUMBLE(TABLE patterns, DESCRIPTOR(rowtime), INTERVAL '1' MINUTE))
                        GROUP BY window_start, window_end, `pattern`
                    )
                    SELECT window_start, `rank`, `pattern`, `count` FROM (
                        SELECT *, ROW_NUMBER() OVER (
                            PARTITION BY window_start, window_end ORDER BY `count` DESC, `pattern` ASC
                        ) AS `rank` FROM counts
                    ) WHERE `rank` <= 20
                    """;
            case "q5" ->
                    """
                    WITH bids AS (
                        SELECT bid_auction AS auction, rowtime FROM input WHERE kind = 2
                    ), counts AS (
                        SELECT auction, window_start, window_end, COUNT(*) AS n
                        FROM TABLE(HOP(TABLE bids, DESCRIPTOR(rowtime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
                        GROUP BY auction, window_start, window_end
                    ), most AS (
                        SELECT window_start, window_end, MAX(n) AS n FROM counts GROUP BY window_start, window_end
                    )
                    SELECT c.window_start, c.auction, c.n FROM counts c JOIN most m
                        ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.n >= m.n
                    """;
            case "q7" ->
                    """
                    WITH bids AS (
                        SELECT bid_auction AS auction, bid_bidder AS bidder, bid_price AS price, ts AS `at`, rowtime FROM input WHERE kind = 2
                    ), highest AS (
                        SELECT window_time AS close_time, MAX(price) AS price
                        FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rowtime), INTERVAL '10' SECOND))
                        GROUP BY window_start, window_end, window_time
                    )
                    SELECT b.auction, b.bidder, b.price, b.`at` FROM bids b JOIN highest h
                        ON b.price = h.price AND b.rowtime BETWEEN h.close_time - INTERVAL '9.999' SECOND AND h.close_time
                    """;
            case "q8" ->
                    """
                    WITH persons AS (
                        SELECT person_id AS id, person_name AS name, rowtime FROM input WHERE kind = 0
                    ), auctions AS (
                        SELECT auction_seller AS seller, rowtime FROM input WHERE kind = 1
                    ), fresh AS (
                        SELECT id, name, window_start, window_end
                        FROM TABLE(TUMBLE(TABLE persons, DESCRIPTOR(rowtime), INTERVAL '10' SECOND))
                        GROUP BY id, name, window_start, window_end
                    ), sellers AS (
                        SELECT seller, window_start, window_end
                        FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(rowtime), INTERVAL '10' SECOND))
                        GROUP BY seller, window_start, window_end
                    )
                    SELECT f.id, f.name, f.window_start FROM fresh f JOIN sellers s
                        ON f.id = s.seller AND f.window_start = s.window_start AND f.window_end = s.window_end
                    """;
            case "q11" ->
                    """
                    WITH bids AS (
                        SELECT bid_bidder AS bidder, rowtime FROM input WHERE kind = 2
                    )
                    SELECT bidder, COUNT(*) AS n, window_start AS first_bid, window_end - INTERVAL '9.999' SECOND AS last_bid
                    FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(rowtime), INTERVAL '9.999' SECOND))
                    GROUP BY bidder, window_start, window_end
                    """;
            default -> throw new IllegalArgumentException(query);
        };
    }

    private static String means(String key, String every, String size) {
        return """
                SELECT %1$s, window_start, COUNT(*) AS n, AVG(CAST(`end` - `start` AS DOUBLE)) AS avg_duration
                FROM TABLE(HOP(TABLE input, DESCRIPTOR(rowtime), INTERVAL %2$s, INTERVAL %3$s))
                GROUP BY %1$s, window_start, window_end
                """
                .formatted(key, every, size);
    }

    private Sql() {}
}
