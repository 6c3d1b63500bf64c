import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Map;

/** A partition directory in the hands of Kafka's log: loaded, worked on, told, and closed. */
public final class Driver {
    private Driver() { }

    public static void main(String[] args) throws IOException {
        Pipe.serve(Map.of(
            "log", Driver::log, "beside", Beside::answer, "stray", Strays::answer));
    }

    /**
     * Load "dir" (see Opened), do every step (see Steps), close. "loaded" and "left" are what the
     * log is like before the steps and behind them (see Told); a step that fails says so and the
     * next one follows. "close" is "clean", as at an orderly stop, or "crash": files stay as they
     * lie.
     */
    private static void log(JsonNode request, ObjectNode answer) throws Exception {
        boolean crash = request.path("close").asText("clean").equals("crash");
        try (Opened opened = new Opened(request)) {
            answer.set("loaded", Told.log(opened));
            ArrayNode steps = answer.putArray("steps");
            for (JsonNode step : request.path("steps")) {
                ObjectNode done = steps.addObject();
                try {
                    Steps.run(opened, step, done);
                } catch (Exception thrown) {
                    Pipe.describe(done, thrown);
                }
                opened.tasks.runDue();
            }
            if (!steps.isEmpty()) answer.set("left", Told.log(opened));
            if (!crash) opened.closeClean();
            if (request.path("settle").asBoolean(true)) opened.tasks.runDelayed();
        }
    }
}
