package peers;

import java.util.Arrays;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.util.Collector;

/** Pairs the calls of a caller: those of a minute are one array of numbers, and a call looks at three of them. */
final class NearCalls extends KeyedProcessFunction<String, Tuple2<String, double[]>, RowData> {
    /** Numbers of a call: time in milliseconds, begin, latitude and longitude in radians, cosine of the latitude. */
    static final int NUMBERS = 5;

    private static final long MINUTE = 60_000;
    private transient MapState<Long, double[]> minutes;

    @Override
    public void open(OpenContext context) {
        minutes =
                getRuntimeContext()
                        .getMapState(
                                new MapStateDescriptor<>(
                                        "minutes", Types.LONG, PrimitiveArrayTypeInfo.DOUBLE_PRIMITIVE_ARRAY_TYPE_INFO));
    }

    @Override
    public void processElement(Tuple2<String, double[]> row, Context context, Collector<RowData> out)
            throws Exception {
        double[] call = row.f1;
        long minute = Math.floorDiv((long) call[0], MINUTE);
        double[] own = null;
        for (long near = minute - 1; near <= minute + 1; near++) {
            double[] calls = minutes.get(near);
            if (calls != null) {
                pair(row.f0, call, calls, out);
            }
            own = near == minute ? calls : own;
        }
        int had = own == null ? 0 : own.length;
        double[] all = had == 0 ? new double[NUMBERS] : Arrays.copyOf(own, had + NUMBERS);
        System.arraycopy(call, 0, all, had, NUMBERS);
        minutes.put(minute, all);
        if (had == 0) { // nothing of this minute can be in a pair once two more have passed
            context.timerService().registerEventTimeTimer((minute + 2) * MINUTE);
        }
    }

    @Override
    public void onTimer(long time, OnTimerContext context, Collector<RowData> out) throws Exception {
        minutes.remove(Math.floorDiv(time, MINUTE) - 2);
    }

    private static void pair(String caller, double[] call, double[] calls, Collector<RowData> out) {
        for (int i = 0; i < calls.length; i += NUMBERS) {
            if (Math.abs(calls[i] - call[0]) > MINUTE || calls[i + 1] == call[1]) {
                continue;
            }
            double lat = Math.sin((calls[i + 2] - call[2]) / 2);
            double lon = Math.sin((calls[i + 3] - call[3]) / 2);
            double km = 2 * 6371.0 * Math.asin(Math.sqrt(lat * lat + call[4] * calls[i + 4] * lon * lon));
            if (km < 500) {
                long one = (long) Math.min(call[1], calls[i + 1]);
                long other = (long) Math.max(call[1], calls[i + 1]);
                out.collect(GenericRowData.of(StringData.fromString(caller), one, other, km));
            }
        }
    }
}
