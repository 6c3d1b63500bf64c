import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/**
 * Prints a line for each setting of a topic, of a broker and of a group: scope, name, type, default, validator;
 * and one for the metadata versions: the least, the largest for production, and its name.
 */
public class Release {
    public static void main(String[] args) throws Exception {
        ConfigDef topic = definitions("org.apache.kafka.storage.internals.log.LogConfig");
        ConfigDef broker = definitions("kafka.server.KafkaConfig");
        if (broker == null) {
            broker = definitions("org.apache.kafka.server.config.AbstractKafkaConfig");
        }
        print("topic", topic);
        print("broker", broker);
        print("group", definitions("org.apache.kafka.coordinator.group.GroupConfig"));
        Class<?> version = Class.forName("org.apache.kafka.server.common.MetadataVersion");
        Object newest = version.getMethod("latestProduction").invoke(null);
        System.out.println(String.join("\t", "metadata.version", "" + least(version),
            "" + version.getMethod("featureLevel").invoke(newest), "" + newest));
    }

    private static short least(Class<?> version) throws Exception {
        for (String constant : new String[] {"MINIMUM_VERSION", "MINIMUM_KRAFT_VERSION"}) {
            try {
                Object found = version.getField(constant).get(null);
                return (Short) version.getMethod("featureLevel").invoke(found);
            } catch (NoSuchFieldException absent) {
                continue;
            }
        }
        throw new IllegalStateException("this release names no least metadata version");
    }

    private static ConfigDef definitions(String name) throws Exception {
        Class<?> type;
        try {
            type = Class.forName(name);
        } catch (ClassNotFoundException absent) {
            return null;
        }
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
        if (definitions == null) {
            return; // settings of groups came with Kafka 4.0
        }
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            String check = key.validator == null
                ? "" : key.validator.getClass().getSimpleName() + "\t" + key.validator;
            System.out.println(String.join("\t", scope, key.name, key.type.toString(),
                String.valueOf(key.defaultValue).replaceAll("\\s", " "), check));
        }
    }
}
