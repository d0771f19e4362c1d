package peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.JobManagerOptions;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * One job on a cluster with the adaptive scheduler, which changes its parallelism when its REST interface is told to, at the next checkpoint and without any wait that it has by default.
 *
 * <p>The first line of the input is the task, as for {@link Peers}; the answer says where the REST interface is, and the job's id. It is cancelled when the input ends.
 */
public final class Rescale {
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Configuration settings = new Configuration();
        settings.set(JobManagerOptions.SCHEDULER, JobManagerOptions.SchedulerType.Adaptive);
        settings.setString("jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling", "0 s");
        settings.setString("jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout", "0 s");
        settings.setString("jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout", "0 s");
        settings.setString("jobmanager.adaptive-scheduler.rescale-trigger.max-delay", "10 s");
        settings.setString("rest.address", "127.0.0.1");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode task = new ObjectMapper().readTree(input.readLine());
        try (MiniCluster flink = new MiniCluster(Peers.cluster(settings))) {
            flink.start();
            StreamExecutionEnvironment env = Peers.environment(task, Duration.ofMillis(task.get("interval_ms").asLong()));
            String query = task.get("query").asText();
            ByHand.build(
                    query,
                    Files.arriving(env, Columns.type(query), task.get("in").asText(), Duration.ofMillis(50)),
                    task.get("out").asText());
            JobGraph job = env.getStreamGraph().getJobGraph();
            flink.submitJob(job).get();
            answers.printf("{\"rest\": \"%s\", \"job\": \"%s\"}%n", flink.getRestAddress().get(), job.getJobID());
            answers.flush();
            while (input.readLine() != null) {}
            flink.cancelJob(job.getJobID()).get();
        }
    }

    private Rescale() {}
}
