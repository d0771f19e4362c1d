package peers;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.util.Collector;

/** A row in each millisecond of real time, windows of a second, set for the shortest latency: nothing waits in a buffer, and time moves on with every row. */
final class Latency {
    private static final TypeInformation<long[]> NUMBERS = PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO;
    private static final Duration SECOND = Duration.ofSeconds(1);

    /** The task says when the first row is due (begin, in milliseconds), how many there are (total), and how many keys. */
    static void build(StreamExecutionEnvironment env, JsonNode task) {
        env.setBufferTimeout(0);
        env.getConfig().setAutoWatermarkInterval(1);
        long begin = task.get("begin").asLong();
        int keys = task.get("keys").asInt();
        GeneratorFunction<Long, long[]> rows =
                number -> {
                    for (long wait = begin + number - System.currentTimeMillis(); wait > 0; ) {
                        Thread.sleep(wait);
                        wait = begin + number - System.currentTimeMillis();
                    }
                    return new long[] {number % keys, number, begin + number};
                };
        WatermarkStrategy<long[]> times =
                WatermarkStrategy.<long[]>forMonotonousTimestamps().withTimestampAssigner((row, before) -> row[2]);
        SingleOutputStreamOperator<RowData> totals =
                env.fromSource(
                                new DataGeneratorSource<>(rows, task.get("total").asLong(), NUMBERS), times, "events")
                        .setParallelism(1)
                        .keyBy(row -> row[0], Types.LONG)
                        .window(TumblingEventTimeWindows.of(SECOND))
                        .aggregate(new Total(), new Row(), NUMBERS, NUMBERS, InternalTypeInfo.of(RowType.of()));
        DataTypes.Field[] columns = {
            DataTypes.FIELD("key", DataTypes.BIGINT()),
            DataTypes.FIELD("window_end", DataTypes.BIGINT()),
            DataTypes.FIELD("n", DataTypes.BIGINT()),
            DataTypes.FIELD("total", DataTypes.BIGINT())
        };
        Files.sink(totals, (RowType) DataTypes.ROW(columns).getLogicalType(), task.get("out").asText());
    }

    /** How many rows, and their sum. */
    private static final class Total implements AggregateFunction<long[], long[], long[]> {
        @Override
        public long[] createAccumulator() {
            return new long[2];
        }

        @Override
        public long[] add(long[] row, long[] total) {
            total[0]++;
            total[1] += row[1];
            return total;
        }

        @Override
        public long[] getResult(long[] total) {
            return total;
        }

        @Override
        public long[] merge(long[] one, long[] other) {
            return new long[] {one[0] + other[0], one[1] + other[1]};
        }
    }

    private static final class Row extends ProcessWindowFunction<long[], RowData, Long, TimeWindow> {
        @Override
        public void process(Long key, Context context, Iterable<long[]> totals, Collector<RowData> out) {
            for (long[] total : totals) {
                out.collect(GenericRowData.of(key, context.window().getEnd(), total[0], total[1]));
            }
        }
    }

    private Latency() {}
}
