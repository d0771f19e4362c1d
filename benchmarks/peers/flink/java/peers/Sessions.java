package peers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.util.Collector;

/** Merges pieces of sessions that are less than the gap apart, in whatever order they come. */
final class Sessions extends KeyedProcessFunction<Long, long[], RowData> {
    static final long GAP = 10_000;

    private transient MapState<Long, long[]> sessions;

    @Override
    public void open(OpenContext context) {
        sessions =
                getRuntimeContext()
                        .getMapState(
                                new MapStateDescriptor<>(
                                        "sessions", Types.LONG, PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO));
    }

    @Override
    public void processElement(long[] piece, Context context, Collector<RowData> out) throws Exception {
        long first = piece[1];
        long last = piece[2];
        long bids = piece[3];
        List<Long> merged = new ArrayList<>();
        for (Map.Entry<Long, long[]> session : sessions.entries()) {
            long[] known = session.getValue();
            if (session.getKey() - last < GAP && first - known[0] < GAP) {
                merged.add(session.getKey());
                first = Math.min(first, session.getKey());
                last = Math.max(last, known[0]);
                bids += known[1];
            }
        }
        for (long begin : merged) {
            sessions.remove(begin);
        }
        sessions.put(first, new long[] {last, bids});
        context.timerService().registerEventTimeTimer(last + GAP - 1);
    }

    @Override
    public void onTimer(long time, OnTimerContext context, Collector<RowData> out) throws Exception {
        List<Long> over = new ArrayList<>();
        for (Map.Entry<Long, long[]> session : sessions.entries()) {
            if (session.getValue()[0] + GAP - 1 <= time) {
                over.add(session.getKey());
            }
        }
        for (long first : over) {
            long[] known = sessions.get(first);
            out.collect(GenericRowData.of(context.getCurrentKey(), known[1], first, known[0]));
            sessions.remove(first);
        }
    }
}
