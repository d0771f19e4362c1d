package peers;

import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

/** The queries as somebody writes them who knows Flink well: programs of their own on DataStream, with what is special about each query put to use. */
final class ByHand {
    private static final TypeInformation<long[]> NUMBERS = PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO;
    private static final int PERSON = 0;
    private static final int AUCTION = 1;
    private static final int BID = 2;

    static void build(StreamExecutionEnvironment env, String query, String in, String out) {
        build(query, Files.source(env, Columns.type(query), in), out);
    }

    static void build(String query, DataStream<RowData> rows, String out) {
        switch (query) {
            case "heavy-callers" -> {
                DataStream<Tuple3<String, Long, long[]>> sums =
                        sliding(rows, Types.STRING, 3_600_000, 60_000, new Duration<>(row -> row.getString(0).toString()));
                means(sums, "src", DataTypes.STRING(), 3_600_000, StringData::fromString, out);
            }
            case "district" -> {
                DataStream<Tuple3<Integer, Long, long[]>> sums =
                        sliding(rows, Types.INT, 60_000, 10_000, new Duration<>(row -> row.getInt(0)));
                means(sums, "district", DataTypes.INT(), 60_000, district -> district, out);
            }
            case "cdr-join" -> nearCalls(rows, out);
            case "clickstream" -> patterns(rows, out);
            case "q5" -> hotItems(rows, out);
            case "q7" -> highestBids(rows, out);
            case "q8" -> newSellers(rows, out);
            case "q11" -> sessions(rows, out);
            default -> throw new IllegalArgumentException(query);
        }
    }

    // ── windows of sums ──────────────────────────────────────────────────────────────────────────────────────────

    private interface Function<A, B> extends java.io.Serializable {
        B of(A value);
    }

    /** The key of a call, and how long it took. */
    private record Duration<K>(Function<RowData, K> keyOf) implements LocalPanes.Parts<RowData, K> {
        @Override
        public K key(RowData row) {
            return keyOf.of(row);
        }

        @Override
        public long value(RowData row) {
            return row.getLong(2) - row.getLong(1);
        }
    }

    private static <I, K> SingleOutputStreamOperator<Tuple3<K, Long, long[]>> sliding(
            DataStream<I> rows, TypeInformation<K> key, long size, long every, LocalPanes.Parts<I, K> parts) {
        TypeInformation<Tuple3<K, Long, long[]>> sums = Types.TUPLE(key, Types.LONG, NUMBERS);
        return rows.transform("panes", sums, new LocalPanes<>(every, parts))
                .keyBy(part -> part.f0, key)
                .process(new SlidingSums<>(size, every), sums);
    }

    private static <K> void means(
            DataStream<Tuple3<K, Long, long[]>> sums, String key, DataType type, long size, Function<K, Object> internal, String out) {
        write(
                sums.map(
                        sum ->
                                GenericRowData.of(
                                        internal.of(sum.f0), sum.f1 - size, sum.f2[0], (double) sum.f2[1] / sum.f2[0]),
                        any()),
                out,
                DataTypes.FIELD(key, type),
                DataTypes.FIELD("window_start", DataTypes.BIGINT()),
                DataTypes.FIELD("n", DataTypes.BIGINT()),
                DataTypes.FIELD("avg_duration", DataTypes.DOUBLE()));
    }

    // ── joins and patterns ───────────────────────────────────────────────────────────────────────────────────────

    private static void nearCalls(DataStream<RowData> rows, String out) {
        DataStream<Tuple2<String, double[]>> calls =
                rows.map(
                        row -> {
                            double lat = Math.toRadians(row.getDouble(2));
                            double lon = Math.toRadians(row.getDouble(3));
                            double[] call = {row.getLong(4) / 1000, row.getLong(1), lat, lon, Math.cos(lat)};
                            return Tuple2.of(row.getString(0).toString(), call);
                        },
                        Types.TUPLE(Types.STRING, PrimitiveArrayTypeInfo.DOUBLE_PRIMITIVE_ARRAY_TYPE_INFO));
        write(
                calls.keyBy(call -> call.f0, Types.STRING).process(new NearCalls(), any()),
                out,
                DataTypes.FIELD("src", DataTypes.STRING()),
                DataTypes.FIELD("start", DataTypes.BIGINT()),
                DataTypes.FIELD("start_right", DataTypes.BIGINT()),
                DataTypes.FIELD("km", DataTypes.DOUBLE()));
    }

    private static void patterns(DataStream<RowData> rows, String out) {
        TypeInformation<Tuple3<String, Long, long[]>> counts = Types.TUPLE(Types.STRING, Types.LONG, NUMBERS);
        TypeInformation<Tuple2<Long, Integer>> slices = Types.TUPLE(Types.LONG, Types.INT);
        DataStream<Tuple3<String, String, Long>> clicks =
                rows.flatMap(
                        (row, found) -> {
                            String page = row.getString(1).toString().toLowerCase();
                            if (!page.endsWith(".png")) {
                                String name = page.endsWith(".html") ? page.substring(0, page.length() - 5) : page;
                                found.collect(Tuple3.of(row.getString(0).toString(), name, row.getLong(2)));
                            }
                        },
                        Types.TUPLE(Types.STRING, Types.STRING, Types.LONG));
        DataStream<Tuple3<String, Long, long[]>> top =
                clicks.keyBy(click -> click.f0, Types.STRING)
                        .process(new LastPages(), Types.STRING)
                        .transform("count", counts, new LocalPanes<>(TopPatterns.MINUTE, new Pattern()))
                        .keyBy(part -> Tuple2.of(part.f1, Math.floorMod(part.f0.hashCode(), TopPatterns.SLICES)), slices)
                        .process(new TopPatterns(), counts)
                        .keyBy(part -> Tuple2.of(part.f1, 0), slices)
                        .process(new TopPatterns(), counts);
        write(
                top.map(
                        pattern -> GenericRowData.of(pattern.f1, pattern.f2[1], StringData.fromString(pattern.f0), pattern.f2[0]),
                        any()),
                out,
                DataTypes.FIELD("window_start", DataTypes.BIGINT()),
                DataTypes.FIELD("rank", DataTypes.BIGINT()),
                DataTypes.FIELD("pattern", DataTypes.STRING()),
                DataTypes.FIELD("count", DataTypes.BIGINT()));
    }

    /** A pattern, to be counted. */
    private record Pattern() implements LocalPanes.Parts<String, String> {
        @Override
        public String key(String pattern) {
            return pattern;
        }

        @Override
        public long value(String pattern) {
            return 0;
        }
    }

    // ── NEXMark ──────────────────────────────────────────────────────────────────────────────────────────────────

    /** The auction of a bid, to be counted. */
    private record Auction() implements LocalPanes.Parts<RowData, Long> {
        @Override
        public Long key(RowData bid) {
            return bid.getLong(1);
        }

        @Override
        public long value(RowData bid) {
            return 0;
        }
    }

    private static void hotItems(DataStream<RowData> rows, String out) {
        DataStream<long[]> counts =
                sliding(rows.filter(row -> row.getByte(0) == BID), Types.LONG, 10_000, 2_000, new Auction())
                        .map(count -> new long[] {count.f1, count.f2[0], count.f0}, NUMBERS);
        write(
                best(counts).map(row -> GenericRowData.of(row[0] - 10_000, row[2], row[1]), any()),
                out,
                DataTypes.FIELD("window_start", DataTypes.BIGINT()),
                DataTypes.FIELD("auction", DataTypes.BIGINT()),
                DataTypes.FIELD("n", DataTypes.BIGINT()));
    }

    private static void highestBids(DataStream<RowData> rows, String out) {
        DataStream<long[]> bids =
                rows.flatMap(
                        (row, found) -> {
                            if (row.getByte(0) == BID) {
                                long end = (row.getLong(4) / 1000 / 10_000 + 1) * 10_000;
                                found.collect(new long[] {end, row.getLong(3), row.getLong(1), row.getLong(2), row.getLong(4)});
                            }
                        },
                        NUMBERS);
        write(
                best(bids).map(row -> GenericRowData.of(row[2], row[3], row[1], row[4]), any()),
                out,
                DataTypes.FIELD("auction", DataTypes.BIGINT()),
                DataTypes.FIELD("bidder", DataTypes.BIGINT()),
                DataTypes.FIELD("price", DataTypes.BIGINT()),
                DataTypes.FIELD("at", DataTypes.BIGINT()));
    }

    private static SingleOutputStreamOperator<long[]> best(DataStream<long[]> rows) {
        return rows.transform("best here", NUMBERS, new LocalBest())
                .keyBy(row -> row[0], Types.LONG)
                .process(new Best(), NUMBERS);
    }

    private static void newSellers(DataStream<RowData> rows, String out) {
        DataStream<Tuple3<Long, Long, String>> seen =
                rows.flatMap(
                        (row, found) -> {
                            long end = (row.getLong(4) / 1000 / NewSellers.SIZE + 1) * NewSellers.SIZE;
                            if (row.getByte(0) == PERSON) {
                                found.collect(Tuple3.of(row.getLong(1), end, row.getString(2).toString()));
                            } else if (row.getByte(0) == AUCTION) {
                                found.collect(Tuple3.of(row.getLong(3), end, ""));
                            }
                        },
                        Types.TUPLE(Types.LONG, Types.LONG, Types.STRING));
        write(
                seen.keyBy(one -> one.f0, Types.LONG).process(new NewSellers(), any()),
                out,
                DataTypes.FIELD("id", DataTypes.BIGINT()),
                DataTypes.FIELD("name", DataTypes.STRING()),
                DataTypes.FIELD("window_start", DataTypes.BIGINT()));
    }

    private static void sessions(DataStream<RowData> rows, String out) {
        DataStream<long[]> pieces =
                rows.flatMap(
                                (row, found) -> {
                                    if (row.getByte(0) == BID) {
                                        found.collect(row.getLong(1));
                                    }
                                },
                                Types.LONG)
                        .transform("pieces", NUMBERS, new LocalSessions());
        write(
                pieces.keyBy(piece -> piece[0], Types.LONG).process(new Sessions(), any()),
                out,
                DataTypes.FIELD("bidder", DataTypes.BIGINT()),
                DataTypes.FIELD("n", DataTypes.BIGINT()),
                DataTypes.FIELD("first_bid", DataTypes.BIGINT()),
                DataTypes.FIELD("last_bid", DataTypes.BIGINT()));
    }

    // ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /** The type of rows that go to the sink, which is chained to what makes them: they are never serialised. */
    private static TypeInformation<RowData> any() {
        return InternalTypeInfo.of(RowType.of());
    }

    private static void write(DataStream<RowData> rows, String out, DataTypes.Field... columns) {
        Files.sink(rows, (RowType) DataTypes.ROW(columns).getLogicalType(), out);
    }

    private ByHand() {}
}
