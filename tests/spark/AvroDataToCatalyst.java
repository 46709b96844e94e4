package org.apache.spark.sql.avro;

import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Map;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Fake of the expression of spark-avro, which Spark makes of its function from_avro: queries with
 * it are analyzed, and cannot be run.
 */
public final class AvroDataToCatalyst extends Expression {
  private final Expression child;
  private final String jsonFormatSchema;
  private final Map<String, String> options;

  public AvroDataToCatalyst(Expression child, String schema, Map<String, String> options) {
    this.child = child;
    this.jsonFormatSchema = schema;
    this.options = options;
  }

  public Expression child() {
    return child;
  }

  public String jsonFormatSchema() {
    return jsonFormatSchema;
  }

  @Override
  public DataType dataType() {
    return SchemaConverters.toSqlType(new Schema.Parser().parse(jsonFormatSchema)).dataType();
  }

  @Override
  public boolean nullable() {
    return true;
  }

  @Override
  public Seq<Expression> children() {
    return (Seq<Expression>) (Seq<?>) Nil$.MODULE$.$colon$colon(child);
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> others) {
    return new AvroDataToCatalyst(others.head(), jsonFormatSchema, options);
  }

  @Override
  public Object eval(InternalRow row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    throw new UnsupportedOperationException();
  }

  @Override
  public int productArity() {
    return 3;
  }

  @Override
  public Object productElement(int index) {
    return new Object[] {child, jsonFormatSchema, options}[index];
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof AvroDataToCatalyst;
  }
}
