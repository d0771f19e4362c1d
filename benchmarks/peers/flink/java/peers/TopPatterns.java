package peers;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** The twenty most frequent patterns of a minute: first of each slice of the patterns, then, by the same code, of what the slices gave. */
final class TopPatterns
        extends KeyedProcessFunction<Tuple2<Long, Integer>, Tuple3<String, Long, long[]>, Tuple3<String, Long, long[]>> {
    static final long MINUTE = 60_000;
    static final int SLICES = 64;
    private static final int TOP = 20;
    private static final Comparator<Tuple2<String, Long>> BEST_FIRST =
            Comparator.<Tuple2<String, Long>, Long>comparing(pattern -> -pattern.f1).thenComparing(p -> p.f0);

    private transient MapState<String, Long> counts;

    @Override
    public void open(OpenContext context) {
        counts = getRuntimeContext().getMapState(new MapStateDescriptor<>("counts", Types.STRING, Types.LONG));
    }

    @Override
    public void processElement(
            Tuple3<String, Long, long[]> part, Context context, Collector<Tuple3<String, Long, long[]>> out)
            throws Exception {
        Long before = counts.get(part.f0);
        counts.put(part.f0, part.f2[0] + (before == null ? 0 : before));
        context.timerService().registerEventTimeTimer(part.f1 + MINUTE - 1);
    }

    @Override
    public void onTimer(long time, OnTimerContext context, Collector<Tuple3<String, Long, long[]>> out)
            throws Exception {
        List<Tuple2<String, Long>> all = new ArrayList<>();
        for (Map.Entry<String, Long> pattern : counts.entries()) {
            all.add(Tuple2.of(pattern.getKey(), pattern.getValue()));
        }
        all.sort(BEST_FIRST);
        for (int i = 0; i < Math.min(TOP, all.size()); i++) {
            long[] countAndRank = {all.get(i).f1, i + 1};
            out.collect(Tuple3.of(all.get(i).f0, context.getCurrentKey().f0, countAndRank));
        }
        counts.clear();
    }
}
