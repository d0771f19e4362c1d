package peers;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.util.Collector;

/** Gives who appears as a person and as a seller in the same window. Rows: id, end of the window, name of the person; an auction has an empty name. */
final class NewSellers extends KeyedProcessFunction<Long, Tuple3<Long, Long, String>, RowData> {
    static final long SIZE = 10_000;

    private transient MapState<Long, String> names;
    private transient MapState<Long, Boolean> sells;

    @Override
    public void open(OpenContext context) {
        names = getRuntimeContext().getMapState(new MapStateDescriptor<>("names", Types.LONG, Types.STRING));
        sells = getRuntimeContext().getMapState(new MapStateDescriptor<>("sells", Types.LONG, Types.BOOLEAN));
    }

    @Override
    public void processElement(Tuple3<Long, Long, String> row, Context context, Collector<RowData> out)
            throws Exception {
        String name = names.get(row.f1);
        boolean seller = sells.contains(row.f1);
        boolean isPerson = !row.f2.isEmpty();
        if (isPerson ? name != null : seller) {
            return;
        }
        if (isPerson) {
            names.put(row.f1, row.f2);
        } else {
            sells.put(row.f1, true);
        }
        if (name == null && !seller) {
            context.timerService().registerEventTimeTimer(row.f1 - 1);
        } else {
            String found = isPerson ? row.f2 : name;
            out.collect(GenericRowData.of(row.f0, StringData.fromString(found), row.f1 - SIZE));
        }
    }

    @Override
    public void onTimer(long time, OnTimerContext context, Collector<RowData> out) throws Exception {
        names.remove(time + 1);
        sells.remove(time + 1);
    }
}
