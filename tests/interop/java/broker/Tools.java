import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/** Kafka's own command-line tools before a running broker, in this process. */
final class Tools {
    /** A tool ends the process by this. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;
        final int code;

        Ended(int code) {
            super("exit code " + code);
            this.code = code;
        }
    }

    private Tools() { }

    /** What the "main" of a "class" prints, given "words"; "bootstrap" goes before them. */
    static void run(JsonNode request, ObjectNode answer) throws Exception {
        List<String> words = new ArrayList<>();
        words.add("--bootstrap-server");
        words.add(request.get("bootstrap").asText());
        request.get("words").forEach(each -> words.add(each.asText()));
        Exit.Procedure end = (code, message) -> {
            throw new Ended(code);
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        int code = 0;
        try (PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8)) {
            System.setOut(out);
            Method main = Class.forName(request.get("class").asText())
                .getMethod("main", String[].class);
            scala.Console.withOut(out, () -> invoked(main, words));
        } catch (Ended ended) {
            code = ended.code;
        } finally {
            System.setOut(before);
        }
        answer.put("code", code).put("printed", printed.toString(StandardCharsets.UTF_8));
    }

    private static Object invoked(Method main, List<String> words) {
        try {
            return main.invoke(null, (Object) words.toArray(String[]::new));
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Ended ended) throw ended;
            throw new IllegalStateException(thrown.getCause());
        } catch (IllegalAccessException thrown) {
            throw new IllegalStateException(thrown);
        }
    }
}
