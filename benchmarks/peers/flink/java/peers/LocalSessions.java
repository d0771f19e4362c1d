package peers;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/** Joins bids to pieces of sessions before they are sent: key, first bid, last bid, number of bids. */
final class LocalSessions extends AbstractStreamOperator<long[]> implements OneInputStreamOperator<Long, long[]> {
    private static final long SEND_EVERY = 1_000;

    private transient Map<Long, long[]> open;
    private transient long sent;

    @Override
    public void open() throws Exception {
        super.open();
        open = new HashMap<>();
        sent = Long.MIN_VALUE;
    }

    @Override
    public void processElement(StreamRecord<Long> record) {
        long time = record.getTimestamp();
        long[] piece = open.get(record.getValue());
        if (piece != null && time - piece[2] >= Sessions.GAP) {
            output.collect(new StreamRecord<>(piece, piece[2]));
            piece = null;
        }
        if (piece == null) {
            open.put(record.getValue(), new long[] {record.getValue(), time, time, 1});
        } else {
            piece[2] = time;
            piece[3]++;
        }
    }

    @Override
    public void processWatermark(Watermark mark) throws Exception {
        // A session that waits here while time goes on would come too late; one that is sent bid by bid gains nothing.
        if (mark.getTimestamp() >= sent + SEND_EVERY) {
            send();
            sent = mark.getTimestamp();
            super.processWatermark(mark);
        }
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
        open.values().forEach(piece -> output.collect(new StreamRecord<>(piece, piece[2])));
        open.clear();
    }
}
