//! Values of Arrow columns as fields of examples.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use crate::data::{Example, Field};

/// Checks that values of a type are read.
///
/// # Errors
/// The type that is not.
pub fn check_type(kind: &DataType) -> Result<(), String> {
    match kind {
        DataType::Null
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float16
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Binary
        | DataType::LargeBinary => Ok(()),
        DataType::List(inner) | DataType::LargeList(inner) | DataType::FixedSizeList(inner, _) => {
            check_type(inner.data_type())
        }
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| check_type(field.data_type()))
        }
        other => Err(other.to_string()),
    }
}

/// Returns the value of a row. `true` is 1, and `false` 0.
pub fn read_field(column: &ArrayRef, row: usize) -> Field {
    if column.is_null(row) {
        return Field::Null;
    }
    macro_rules! value {
        ($kind:ty) => {
            column.as_primitive::<$kind>().value(row)
        };
    }
    match column.data_type() {
        DataType::Boolean => Field::Integer(i64::from(column.as_boolean().value(row))),
        DataType::Int8 => Field::Integer(value!(Int8Type).into()),
        DataType::Int16 => Field::Integer(value!(Int16Type).into()),
        DataType::Int32 => Field::Integer(value!(Int32Type).into()),
        DataType::Int64 => Field::Integer(value!(Int64Type)),
        DataType::UInt8 => Field::Integer(value!(UInt8Type).into()),
        DataType::UInt16 => Field::Integer(value!(UInt16Type).into()),
        DataType::UInt32 => Field::Integer(value!(UInt32Type).into()),
        DataType::UInt64 => {
            let value = value!(UInt64Type);
            i64::try_from(value).map_or(Field::Number(value as f64), Field::Integer)
        }
        DataType::Float16 => Field::Number(value!(Float16Type).to_f64()),
        DataType::Float32 => Field::Number(value!(Float32Type).into()),
        DataType::Float64 => Field::Number(value!(Float64Type)),
        DataType::Utf8 => Field::Text(column.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Field::Text(column.as_string::<i64>().value(row).to_owned()),
        DataType::Binary => Field::Bytes(column.as_binary::<i32>().value(row).to_vec()),
        DataType::LargeBinary => Field::Bytes(column.as_binary::<i64>().value(row).to_vec()),
        DataType::List(_) => list(&column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(&column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => list(&column.as_fixed_size_list().value(row)),
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(column.as_struct().columns());
            let read =
                columns.map(|(field, column)| (field.name().clone(), read_field(column, row)));
            Field::Object(Example::new(read))
        }
        // Other types are refused when a file is opened.
        _ => Field::Null,
    }
}

fn list(values: &ArrayRef) -> Field {
    Field::List((0..values.len()).map(|row| read_field(values, row)).collect())
}
