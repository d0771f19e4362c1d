package peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Runs Flink jobs in one JVM, one after the other: a task on every line of the input, an answer on every line of the output.
 *
 * <p>A task is JSON: query, form (sql, datastream), state (hashmap, rocksdb), the folders in, out and checkpoints, and the milliseconds between two checkpoints (interval_ms) if those are not a thousand. The cluster stays, as it does where people run jobs; the seconds of a job are from its planning to its end, when the last rows are committed.
 */
public final class Peers {
    static final int PARALLELISM = 2;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever libraries say is no answer
        Configuration settings = new Configuration();
        MiniClusterConfiguration cluster = cluster(settings);
        ObjectMapper json = new ObjectMapper();
        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (MiniCluster flink = new MiniCluster(cluster)) {
            flink.start();
            for (String line = tasks.readLine(); line != null; line = tasks.readLine()) {
                JsonNode task = json.readTree(line);
                long begun = System.nanoTime();
                try {
                    run(flink, task);
                    answers.printf("{\"seconds\": %.6f}%n", (System.nanoTime() - begun) / 1e9);
                } catch (Exception | LinkageError failed) {
                    failed.printStackTrace();
                    answers.println("{\"error\": \"the job failed\"}");
                }
                answers.flush();
            }
        }
    }

    /** One machine with a slot for each core. */
    static MiniClusterConfiguration cluster(Configuration settings) {
        settings.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(1024));
        settings.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(256));
        settings.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(256));
        settings.set(RestOptions.BIND_ADDRESS, "127.0.0.1");
        settings.set(RestOptions.BIND_PORT, "0");
        return new MiniClusterConfiguration.Builder()
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(PARALLELISM)
                .setConfiguration(settings)
                .build();
    }

    private static void run(MiniCluster flink, JsonNode task) throws Exception {
        String query = task.get("query").asText();
        String in = task.path("in").asText();
        String out = task.get("out").asText();
        StreamExecutionEnvironment env = environment(task, Duration.ofMillis(task.path("interval_ms").asLong(1_000)));
        if (query.equals("latency")) {
            Latency.build(env, task);
        } else if (task.get("form").asText().equals("sql")) {
            Sql.build(env, query, in, out);
        } else {
            ByHand.build(env, query, in, out);
        }
        flink.executeJobBlocking(env.getStreamGraph().getJobGraph());
    }

    /** What all jobs have in common: where state is, and exactly-once checkpoints. */
    static StreamExecutionEnvironment environment(JsonNode task, Duration interval) {
        Configuration settings = new Configuration();
        settings.set(StateBackendOptions.STATE_BACKEND, task.get("state").asText());
        settings.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, true);
        settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + task.get("checkpoints").asText());
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, interval);
        settings.set(CheckpointingOptions.CHECKPOINTING_CONSISTENCY_MODE, CheckpointingMode.EXACTLY_ONCE);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        env.setParallelism(PARALLELISM);
        env.setMaxParallelism(256);
        env.getConfig().enableObjectReuse();
        return env;
    }
}
