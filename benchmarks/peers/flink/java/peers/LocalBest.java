package peers;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/** Keeps, per window, the rows with the largest value that came through here. Rows are numbers: the window's end, the value, what else is wanted. */
final class LocalBest extends AbstractStreamOperator<long[]> implements OneInputStreamOperator<long[], long[]> {
    private transient Map<Long, List<long[]>> best;

    @Override
    public void open() throws Exception {
        super.open();
        best = new HashMap<>();
    }

    @Override
    public void processElement(StreamRecord<long[]> record) {
        add(best.computeIfAbsent(record.getValue()[0], any -> new ArrayList<>()), record.getValue());
    }

    /** Add a row to the best ones, if it is one. */
    static void add(List<long[]> rows, long[] row) {
        if (!rows.isEmpty() && rows.get(0)[1] < row[1]) {
            rows.clear();
        }
        if (rows.isEmpty() || rows.get(0)[1] == row[1]) {
            rows.add(row.clone());
        }
    }

    @Override
    public void processWatermark(Watermark mark) throws Exception {
        if (best.keySet().stream().anyMatch(end -> end - 1 <= mark.getTimestamp())) {
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
        best.values().forEach(rows -> rows.forEach(row -> output.collect(new StreamRecord<>(row, row[0] - 1))));
        best.clear();
    }
}
