package peers;

import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

/** Which columns of its input a query reads; the time comes last. */
final class Columns {
    static DataType of(String query) {
        return switch (query) {
            case "heavy-callers" ->
                    row("src", DataTypes.STRING(), "start", DataTypes.BIGINT(), "end", DataTypes.BIGINT());
            case "district" ->
                    row("district", DataTypes.INT(), "start", DataTypes.BIGINT(), "end", DataTypes.BIGINT());
            case "cdr-join" ->
                    row(
                            "src", DataTypes.STRING(),
                            "start", DataTypes.BIGINT(),
                            "lat", DataTypes.DOUBLE(),
                            "lon", DataTypes.DOUBLE());
            case "clickstream" -> row("session", DataTypes.STRING(), "page", DataTypes.STRING());
            case "q5" -> row("kind", DataTypes.TINYINT(), "bid_auction", DataTypes.BIGINT());
            case "q7" ->
                    row(
                            "kind", DataTypes.TINYINT(),
                            "bid_auction", DataTypes.BIGINT(),
                            "bid_bidder", DataTypes.BIGINT(),
                            "bid_price", DataTypes.BIGINT());
            case "q8" ->
                    row(
                            "kind", DataTypes.TINYINT(),
                            "person_id", DataTypes.BIGINT(),
                            "person_name", DataTypes.STRING(),
                            "auction_seller", DataTypes.BIGINT());
            case "q11" -> row("kind", DataTypes.TINYINT(), "bid_bidder", DataTypes.BIGINT());
            default -> throw new IllegalArgumentException(query);
        };
    }

    static RowType type(String query) {
        return (RowType) of(query).getLogicalType();
    }

    private static DataType row(Object... namesAndTypes) {
        DataTypes.Field[] fields = new DataTypes.Field[namesAndTypes.length / 2 + 1];
        for (int i = 0; i < fields.length - 1; i++) {
            fields[i] = DataTypes.FIELD((String) namesAndTypes[2 * i], (DataType) namesAndTypes[2 * i + 1]);
        }
        fields[fields.length - 1] = DataTypes.FIELD("ts", DataTypes.BIGINT());
        return DataTypes.ROW(fields);
    }

    private Columns() {}
}
