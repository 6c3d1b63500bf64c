import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Prints a line for each setting of a topic and of a broker: scope, name, type, default, validator. */
public class ConfigDefs {
    public static void main(String[] args) throws Exception {
        ConfigDef topic = definitions("org.apache.kafka.storage.internals.log.LogConfig");
        ConfigDef broker = definitions("kafka.server.KafkaConfig");
        if (broker == null) {
            broker = definitions("org.apache.kafka.server.config.AbstractKafkaConfig");
        }
        print("topic", topic);
        print("broker", broker);
    }

    private static ConfigDef definitions(String name) throws Exception {
        Class<?> type = Class.forName(name);
        for (String method : new String[] {"configDefCopy", "configDef"}) {
            try {
                Method found = type.getDeclaredMethod(method);
                found.setAccessible(true);
                return (ConfigDef) found.invoke(null);
            } catch (NoSuchMethodException absent) {
                continue;
            }
        }
        for (String constant : new String[] {"CONFIG", "CONFIG_DEF"}) {
            try {
                Field found = type.getDeclaredField(constant);
                found.setAccessible(true);
                return Modifier.isStatic(found.getModifiers()) ? (ConfigDef) found.get(null) : null;
            } catch (NoSuchFieldException absent) {
                continue;
            }
        }
        return null;
    }

    private static void print(String scope, ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            String check = key.validator == null
                ? "" : key.validator.getClass().getSimpleName() + "\t" + key.validator;
            System.out.println(String.join("\t", scope, key.name, key.type.toString(),
                String.valueOf(key.defaultValue).replaceAll("\\s", " "), check));
        }
    }
}
