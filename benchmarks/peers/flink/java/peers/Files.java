package peers;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.assigners.FileSplitAssigner;
import org.apache.flink.connector.file.src.enumerate.NonSplittingRecursiveEnumerator;
import org.apache.flink.core.fs.Path;
import org.apache.flink.formats.parquet.ParquetColumnarRowInputFormat;
import org.apache.flink.formats.parquet.row.ParquetRowDataBuilder;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;
import org.apache.hadoop.conf.Configuration;

/** Parquet files in and out, the same for both forms: read by columns, in the order of their names; written exactly once. */
final class Files {
    private static final int BATCH = 2048;

    /** Read the columns of a type. The last one is the time, in microseconds; every file is in the order of time. */
    static DataStream<RowData> source(StreamExecutionEnvironment env, RowType type, String folder) {
        return source(env, type, folder, builder -> {}, WatermarkStrategy.forMonotonousTimestamps());
    }

    /** Read files for as long as new ones come, all of them in one task: the time goes on with each file. */
    static DataStream<RowData> arriving(StreamExecutionEnvironment env, RowType type, String folder, Duration every) {
        return source(env, type, folder, builder -> builder.monitorContinuously(every), BySeconds.strategy())
                .setParallelism(1);
    }

    private static SingleOutputStreamOperator<RowData> source(
            StreamExecutionEnvironment env,
            RowType type,
            String folder,
            Consumer<FileSource.FileSourceBuilder<RowData>> more,
            WatermarkStrategy<RowData> watermarks) {
        ParquetColumnarRowInputFormat<FileSourceSplit> format =
                new ParquetColumnarRowInputFormat<>(
                        new Configuration(), type, InternalTypeInfo.of(type), BATCH, true, true);
        FileSource.FileSourceBuilder<RowData> files =
                FileSource.forBulkFileFormat(format, new Path("file://" + folder))
                        .setFileEnumerator(NonSplittingRecursiveEnumerator::new)
                        .setSplitAssigner(InOrder::new);
        more.accept(files);
        int time = type.getFieldCount() - 1;
        WatermarkStrategy<RowData> times =
                watermarks.withTimestampAssigner((row, before) -> Math.floorDiv(row.getLong(time), 1000L));
        return env.fromSource(files.build(), times, "files", InternalTypeInfo.of(type));
    }

    /** Write rows; files are committed with the checkpoint that they are in. */
    static void sink(DataStream<RowData> rows, RowType type, String folder) {
        Configuration settings = new Configuration();
        settings.set("parquet.compression", "SNAPPY");
        rows.sinkTo(
                FileSink.forBulkFormat(
                                new Path("file://" + folder),
                                ParquetRowDataBuilder.createWriterFactory(type, settings, true))
                        .withBucketAssigner(new BasePathBucketAssigner<>())
                        .withRollingPolicy(OnCheckpointRollingPolicy.build())
                        .build());
    }

    /**
     * Says the time as soon as it has gone on by a second. Flink asks for it five times a second and forgets what a file has said when it is at its end: of a file that was read in less
     * time, nobody would hear.
     */
    private static final class BySeconds implements WatermarkGenerator<RowData> {
        private static final long SECOND = 1000;
        private long greatest = Long.MIN_VALUE + SECOND;
        private long said = Long.MIN_VALUE;

        static WatermarkStrategy<RowData> strategy() {
            return WatermarkStrategy.forGenerator(context -> new BySeconds());
        }

        @Override
        public void onEvent(RowData row, long time, WatermarkOutput output) {
            greatest = Math.max(greatest, time);
            if (greatest - SECOND >= said) {
                onPeriodicEmit(output);
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {
            said = greatest;
            output.emitWatermark(new Watermark(greatest - 1));
        }
    }

    /** Hands files out in the order of their names: Flink's own assigners have none, and rows would be late. */
    private static final class InOrder implements FileSplitAssigner {
        private ArrayDeque<FileSourceSplit> waiting;

        InOrder(Collection<FileSourceSplit> splits) {
            waiting = sorted(splits);
        }

        @Override
        public Optional<FileSourceSplit> getNext(String host) {
            return Optional.ofNullable(waiting.poll());
        }

        @Override
        public void addSplits(Collection<FileSourceSplit> splits) {
            List<FileSourceSplit> all = new ArrayList<>(waiting);
            all.addAll(splits);
            waiting = sorted(all);
        }

        @Override
        public Collection<FileSourceSplit> remainingSplits() {
            return List.copyOf(waiting); // a checkpoint writes it down later, when some of them have been handed out
        }

        private static ArrayDeque<FileSourceSplit> sorted(Collection<FileSourceSplit> splits) {
            List<FileSourceSplit> all = new ArrayList<>(splits);
            all.sort(Comparator.comparing(split -> split.path().toString()));
            return new ArrayDeque<>(all);
        }
    }

    private Files() {}
}
