package peers;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/**
 * Counts and sums per key and pane before rows are sent to the owner of their key. What it has is sent on with the end of a pane and before every
 * checkpoint, so it needs no state.
 */
final class LocalPanes<I, K> extends AbstractStreamOperator<Tuple3<K, Long, long[]>>
        implements OneInputStreamOperator<I, Tuple3<K, Long, long[]>> {
    /** How to take a row apart. */
    interface Parts<I, K> extends java.io.Serializable {
        K key(I row);

        long value(I row);
    }

    private static final int MOST = 500_000;

    private final long pane;
    private final Parts<I, K> parts;
    private transient Map<Long, Map<K, long[]>> panes;
    private transient int groups;
    private transient long complete;

    LocalPanes(long pane, Parts<I, K> parts) {
        this.pane = pane;
        this.parts = parts;
    }

    @Override
    public void open() throws Exception {
        super.open();
        panes = new HashMap<>();
        complete = Long.MIN_VALUE;
    }

    @Override
    public void processElement(StreamRecord<I> row) {
        long begin = Math.floorDiv(row.getTimestamp(), pane) * pane;
        Map<K, long[]> keys = panes.computeIfAbsent(begin, any -> new HashMap<>());
        K key = parts.key(row.getValue());
        long[] sums = keys.get(key);
        if (sums == null) {
            sums = new long[2];
            keys.put(key, sums);
            groups++;
        }
        sums[0]++;
        sums[1] += parts.value(row.getValue());
        if (groups > MOST) {
            send();
        }
    }

    @Override
    public void processWatermark(Watermark mark) throws Exception {
        long now = Math.floorDiv(mark.getTimestamp() + 1, pane); // a pane is complete when its last millisecond has been said
        if (now != complete) {
            complete = now;
            send();
        }
        super.processWatermark(mark);
    }

    @Override
    public void prepareSnapshotPreBarrier(long checkpoint) {
        send();
    }

    @Override
    public void finish() {
        send();
    }

    private void send() {
        panes.forEach(
                (begin, keys) ->
                        keys.forEach(
                                (key, sums) -> output.collect(new StreamRecord<>(Tuple3.of(key, begin, sums), begin))));
        panes.clear();
        groups = 0;
    }
}
