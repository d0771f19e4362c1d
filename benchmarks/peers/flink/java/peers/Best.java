package peers;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Gives the rows with the largest value of each window, all of them where several are equal, when the window is complete. */
final class Best extends KeyedProcessFunction<Long, long[], long[]> {
    private transient ListState<long[]> rows;

    @Override
    public void open(OpenContext context) {
        rows =
                getRuntimeContext()
                        .getListState(
                                new ListStateDescriptor<>(
                                        "rows", PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO));
    }

    @Override
    public void processElement(long[] row, Context context, Collector<long[]> out) throws Exception {
        List<long[]> best = new ArrayList<>();
        rows.get().forEach(best::add);
        if (best.isEmpty()) {
            context.timerService().registerEventTimeTimer(row[0] - 1);
        }
        LocalBest.add(best, row);
        rows.update(best);
    }

    @Override
    public void onTimer(long time, OnTimerContext context, Collector<long[]> out) throws Exception {
        for (long[] row : rows.get()) {
            out.collect(row);
        }
        rows.clear();
    }
}
