package peers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** The last five pages of a session, in the order of time: a page waits until all that is earlier has come. Input: session, page, microseconds. */
final class LastPages extends KeyedProcessFunction<String, Tuple3<String, String, Long>, String> {
    private static final int PAGES = 5;
    private static final String BETWEEN = "\n";

    private transient MapState<Long, String> waiting;
    private transient ValueState<String> last;

    @Override
    public void open(OpenContext context) {
        waiting = getRuntimeContext().getMapState(new MapStateDescriptor<>("waiting", Types.LONG, Types.STRING));
        last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Types.STRING));
    }

    @Override
    public void processElement(Tuple3<String, String, Long> click, Context context, Collector<String> out)
            throws Exception {
        String same = waiting.get(click.f2);
        waiting.put(click.f2, same == null ? click.f1 : same + BETWEEN + click.f1);
        context.timerService().registerEventTimeTimer(Math.floorDiv(click.f2, 1000L));
    }

    @Override
    public void onTimer(long time, OnTimerContext context, Collector<String> out) throws Exception {
        List<Long> ready = new ArrayList<>(1);
        for (Map.Entry<Long, String> click : waiting.entries()) {
            if (Math.floorDiv(click.getKey(), 1000L) <= time) {
                ready.add(click.getKey());
            }
        }
        ready.sort(null);
        String pages = last.value();
        int count = pages == null ? 0 : pages.split(BETWEEN).length;
        for (long at : ready) {
            for (String page : waiting.get(at).split(BETWEEN)) {
                if (count == PAGES) {
                    pages = pages.substring(pages.indexOf(BETWEEN) + 1);
                    count--;
                }
                pages = pages == null ? page : pages + BETWEEN + page;
                if (++count == PAGES) {
                    out.collect(pages.replace(BETWEEN, " > "));
                }
            }
            waiting.remove(at);
        }
        last.update(pages);
    }
}
