package peers;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Sliding windows from panes: a running sum, to which each window adds the newest pane and from which it takes the oldest. Gives (key, end, sums). */
final class SlidingSums<K> extends KeyedProcessFunction<K, Tuple3<K, Long, long[]>, Tuple3<K, Long, long[]>> {
    private final long size;
    private final long every;
    private transient MapState<Long, long[]> panes;
    private transient ValueState<long[]> running;

    SlidingSums(long size, long every) {
        this.size = size;
        this.every = every;
    }

    @Override
    public void open(OpenContext context) {
        PrimitiveArrayTypeInfo<long[]> sums = PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO;
        panes = getRuntimeContext().getMapState(new MapStateDescriptor<>("panes", Types.LONG, sums));
        running = getRuntimeContext().getState(new ValueStateDescriptor<>("running", sums));
    }

    @Override
    public void processElement(Tuple3<K, Long, long[]> part, Context context, Collector<Tuple3<K, Long, long[]>> out)
            throws Exception {
        long[] before = panes.get(part.f1);
        long[] sums = part.f2.clone();
        if (before == null) {
            context.timerService().registerEventTimeTimer(part.f1 + every - 1);
        } else {
            add(sums, before, 1);
        }
        panes.put(part.f1, sums);
    }

    @Override
    public void onTimer(long time, OnTimerContext context, Collector<Tuple3<K, Long, long[]>> out) throws Exception {
        long end = time + 1;
        long[] had = running.value();
        long[] sums = had == null ? new long[2] : had.clone();
        long[] newest = panes.get(end - every);
        if (newest != null) {
            add(sums, newest, 1);
        }
        if (sums[0] > 0) {
            out.collect(Tuple3.of(context.getCurrentKey(), end, sums.clone()));
        }
        long[] oldest = panes.get(end - size);
        if (oldest != null) {
            add(sums, oldest, -1);
            panes.remove(end - size);
        }
        if (sums[0] > 0) {
            running.update(sums);
            context.timerService().registerEventTimeTimer(end + every - 1);
        } else {
            running.clear();
        }
    }

    private static void add(long[] to, long[] what, int sign) {
        to[0] += sign * what[0];
        to[1] += sign * what[1];
    }
}
