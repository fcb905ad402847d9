"""The TFLite file format as data: tables, unions and enumerations (TFLite schema, version 3).

One line of ``_TABLES`` describes a table: its name, then its fields in slot order as
``name type`` pairs. Types are scalars (``i8`` ... ``f64``, ``bool``), ``str``, a table name,
``[type]`` for a vector and ``@Union`` for a union (which takes two slots: its type, then its
value). ``=value`` gives a default other than zero, ``_`` a slot that is not used any more.
Reading, verifying and writing are all driven by this one description.

The schema is not recursive, so the nesting of a file is bounded by construction
(``MAX_DEPTH`` guards it all the same).
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from npusched.ir import DataType, OpKind

IDENTIFIER: Final = b"TFL3"
MAX_DEPTH: Final = 16

SCALARS: Final = {
    "i8": "b",
    "u8": "B",
    "bool": "?",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "u64": "Q",
    "f32": "f",
    "f64": "d",
}
"""Scalar type of the schema -> struct code (little endian)."""

_TABLES: Final = """
Model: version u32, operator_codes [OperatorCode], subgraphs [SubGraph], description str, buffers [Buffer], metadata_buffer [i32], metadata [Metadata], signature_defs [SignatureDef]
OperatorCode: deprecated_builtin_code i8, custom_code str, version i32=1, builtin_code i32
SubGraph: tensors [Tensor], inputs [i32], outputs [i32], operators [Operator], name str, debug_metadata_index i32=-1
Buffer: data [u8], offset u64, size u64
Metadata: name str, buffer u32
SignatureDef: inputs [TensorMap], outputs [TensorMap], signature_key str, _, subgraph_index u32
TensorMap: name str, tensor_index u32
Tensor: shape [i32], type i8, buffer u32, name str, quantization QuantizationParameters, is_variable bool, sparsity SparsityParameters, shape_signature [i32], has_rank bool, variant_tensors [VariantSubType]
VariantSubType: shape [i32], type i8, has_rank bool
QuantizationParameters: min [f32], max [f32], scale [f32], zero_point [i64], details @QuantizationDetails, quantized_dimension i32
CustomQuantization: custom [u8]
BlockwiseQuantization: scales i32, zero_points i32, block_size i32
SparsityParameters: traversal_order [i32], block_map [i32], dim_metadata [DimensionMetadata]
DimensionMetadata: format i8, dense_size i32, array_segments @SparseIndexVector, array_indices @SparseIndexVector
Int32Vector: values [i32]
Uint16Vector: values [u16]
Uint8Vector: values [u8]
Operator: opcode_index u32, inputs [i32], outputs [i32], builtin_options @BuiltinOptions, custom_options [u8], custom_options_format i8, mutating_variable_inputs [bool], intermediates [i32], large_custom_options_offset u64, large_custom_options_size u64, builtin_options_2 @BuiltinOptions2, debug_metadata_index i32=-1
AddOptions: fused_activation_function i8, pot_scale_int16 bool=1
ArgMaxOptions: output_type i8
ArgMinOptions: output_type i8
BatchMatMulOptions: adj_x bool, adj_y bool, asymmetric_quantize_inputs bool
BidirectionalSequenceLSTMOptions: fused_activation_function i8, cell_clip f32, proj_clip f32, merge_outputs bool, time_major bool=1, asymmetric_quantize_inputs bool
BidirectionalSequenceRNNOptions: time_major bool, fused_activation_function i8, merge_outputs bool, asymmetric_quantize_inputs bool
BucketizeOptions: boundaries [f32]
CallOnceOptions: init_subgraph_index i32
CallOptions: subgraph u32
CastOptions: in_data_type i8, out_data_type i8
ConcatEmbeddingsOptions: num_channels i32, num_columns_per_channel [i32], embedding_dim_per_channel [i32]
ConcatenationOptions: axis i32, fused_activation_function i8
Conv2DOptions: padding i8, stride_w i32, stride_h i32, fused_activation_function i8, dilation_w_factor i32=1, dilation_h_factor i32=1, quantized_bias_type i8
Conv3DOptions: padding i8, stride_d i32, stride_w i32, stride_h i32, fused_activation_function i8, dilation_d_factor i32=1, dilation_w_factor i32=1, dilation_h_factor i32=1
CumsumOptions: exclusive bool, reverse bool
DepthToSpaceOptions: block_size i32
DepthwiseConv2DOptions: padding i8, stride_w i32, stride_h i32, depth_multiplier i32, fused_activation_function i8, dilation_w_factor i32=1, dilation_h_factor i32=1
DivOptions: fused_activation_function i8
EmbeddingLookupSparseOptions: combiner i8
FakeQuantOptions: min f32, max f32, num_bits i32, narrow_range bool
FullyConnectedOptions: fused_activation_function i8, weights_format i8, keep_num_dims bool, asymmetric_quantize_inputs bool, quantized_bias_type i8
GatherOptions: axis i32, batch_dims i32
GeluOptions: approximate bool
HashtableOptions: table_id i32, key_dtype i8, value_dtype i8
IfOptions: then_subgraph_index i32, else_subgraph_index i32
L2NormOptions: fused_activation_function i8
LSHProjectionOptions: type i8
LSTMOptions: fused_activation_function i8, cell_clip f32, proj_clip f32, kernel_type i8, asymmetric_quantize_inputs bool
LeakyReluOptions: alpha f32
LocalResponseNormalizationOptions: radius i32, bias f32, alpha f32, beta f32
MirrorPadOptions: mode i8
MulOptions: fused_activation_function i8
OneHotOptions: axis i32
PackOptions: values_count i32, axis i32
Pool2DOptions: padding i8, stride_w i32, stride_h i32, filter_width i32, filter_height i32, fused_activation_function i8
RNNOptions: fused_activation_function i8, asymmetric_quantize_inputs bool
RandomOptions: seed i64, seed2 i64
ReduceWindowOptions: reduce_function i32
ReducerOptions: keep_dims bool
ReshapeOptions: new_shape [i32]
ResizeBilinearOptions: _, _, align_corners bool, half_pixel_centers bool
ResizeNearestNeighborOptions: align_corners bool, half_pixel_centers bool
ReverseSequenceOptions: seq_dim i32, batch_dim i32
SVDFOptions: rank i32, fused_activation_function i8, asymmetric_quantize_inputs bool
SequenceRNNOptions: time_major bool, fused_activation_function i8, asymmetric_quantize_inputs bool
ShapeOptions: out_type i8
SkipGramOptions: ngram_size i32, max_skip_size i32, include_all_ngrams bool
SoftmaxOptions: beta f32
SpaceToDepthOptions: block_size i32
SparseToDenseOptions: validate_indices bool
SplitOptions: num_splits i32
SplitVOptions: num_splits i32
SqueezeOptions: squeeze_dims [i32]
StableHLOCompositeOptions: name str, decomposition_subgraph_index i32, composite_attributes [u8], composite_attributes_format i8, version i32
StablehloBroadcastInDimOptions: broadcast_dimensions [i64]
StablehloCaseOptions: branch_subgraph_indices [i32]
StablehloCompareOptions: comparison_direction u32, compare_type u32
StablehloConcatenateOptions: dimension i64
StablehloConvolutionOptions: window_strides [i64], padding [i64], lhs_dilation [i64], rhs_dilation [i64], window_reversal [bool], input_batch_dimension i64, input_feature_dimension i64, input_spatial_dimensions [i64], kernel_input_feature_dimension i64, kernel_output_feature_dimension i64, kernel_spatial_dimensions [i64], output_batch_dimension i64, output_feature_dimension i64, output_spatial_dimensions [i64], feature_group_count i64, batch_group_count i64, precision_config [u32]
StablehloCustomCallOptions: call_target_name str, has_side_effect bool, backend_config str, api_version i32, called_computations [i32], custom_attributes [u8]
StablehloDotGeneralOptions: lhs_batching_dimensions [i64], rhs_batching_dimensions [i64], lhs_contracting_dimensions [i64], rhs_contracting_dimensions [i64], precision_config [u32]
StablehloDynamicSliceOptions: slice_sizes [i64]
StablehloGatherOptions: offset_dims [i64], collapsed_slice_dims [i64], start_index_map [i64], index_vector_dim i64, slice_sizes [i64], indices_are_sorted bool
StablehloIotaOptions: iota_dimension i64
StablehloPadOptions: edge_padding_low [i64], edge_padding_high [i64], interior_padding [i64]
StablehloReduceOptions: dimensions [i64], body_subgraph_index i32
StablehloReduceWindowOptions: window_dimensions [i64], window_strides [i64], base_dilations [i64], window_dilations [i64], padding [i64], body_subgraph_index i32
StablehloRngBitGeneratorOptions: algorithm i8
StablehloScatterOptions: indices_are_sorted bool, update_window_dims [i64], inserted_window_dims [i64], scatter_dims_to_operand_dims [i64], index_vector_dim i64, unique_indices bool, update_computation_subgraph_index i32
StablehloSliceOptions: start_indices [i64], limit_indices [i64], strides [i64]
StablehloSortOptions: dimension i64, is_stable bool, comparator_subgraph_index i32
StablehloTransposeOptions: permutation [i64]
StablehloWhileOptions: cond_subgraph_index i32, body_subgraph_index i32
StridedSliceOptions: begin_mask i32, end_mask i32, ellipsis_mask i32, new_axis_mask i32, shrink_axis_mask i32, offset bool
SubOptions: fused_activation_function i8, pot_scale_int16 bool=1
TransposeConvOptions: padding i8, stride_w i32, stride_h i32, fused_activation_function i8, quantized_bias_type i8
UnidirectionalSequenceLSTMOptions: fused_activation_function i8, cell_clip f32, proj_clip f32, time_major bool, asymmetric_quantize_inputs bool, diagonal_recurrent_tensors bool
UniqueOptions: idx_out_type i8=2
UnpackOptions: num i32, axis i32
VarHandleOptions: container str, shared_name str
WhileOptions: cond_subgraph_index i32, body_subgraph_index i32
"""  # noqa: E501


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


UNIONS: Final[dict[str, tuple[str, ...]]] = {
    "QuantizationDetails": ("", "CustomQuantization", "BlockwiseQuantization"),
    "SparseIndexVector": ("", "Int32Vector", "Uint16Vector", "Uint8Vector"),
    "BuiltinOptions": (
        "",
        *_words("""
    Conv2DOptions DepthwiseConv2DOptions ConcatEmbeddingsOptions LSHProjectionOptions Pool2DOptions
    SVDFOptions RNNOptions FullyConnectedOptions SoftmaxOptions ConcatenationOptions AddOptions
    L2NormOptions LocalResponseNormalizationOptions LSTMOptions ResizeBilinearOptions CallOptions
    ReshapeOptions SkipGramOptions SpaceToDepthOptions EmbeddingLookupSparseOptions MulOptions
    PadOptions GatherOptions BatchToSpaceNDOptions SpaceToBatchNDOptions TransposeOptions
    ReducerOptions SubOptions DivOptions SqueezeOptions SequenceRNNOptions StridedSliceOptions
    ExpOptions TopKV2Options SplitOptions LogSoftmaxOptions CastOptions DequantizeOptions
    MaximumMinimumOptions ArgMaxOptions LessOptions NegOptions PadV2Options GreaterOptions
    GreaterEqualOptions LessEqualOptions SelectOptions SliceOptions TransposeConvOptions
    SparseToDenseOptions TileOptions ExpandDimsOptions EqualOptions NotEqualOptions ShapeOptions
    PowOptions ArgMinOptions FakeQuantOptions PackOptions LogicalOrOptions OneHotOptions
    LogicalAndOptions LogicalNotOptions UnpackOptions FloorDivOptions SquareOptions
    ZerosLikeOptions FillOptions BidirectionalSequenceLSTMOptions BidirectionalSequenceRNNOptions
    UnidirectionalSequenceLSTMOptions FloorModOptions RangeOptions ResizeNearestNeighborOptions
    LeakyReluOptions SquaredDifferenceOptions MirrorPadOptions AbsOptions SplitVOptions
    UniqueOptions ReverseV2Options AddNOptions GatherNdOptions CosOptions WhereOptions RankOptions
    ReverseSequenceOptions MatrixDiagOptions QuantizeOptions MatrixSetDiagOptions HardSwishOptions
    IfOptions WhileOptions DepthToSpaceOptions NonMaxSuppressionV4Options
    NonMaxSuppressionV5Options ScatterNdOptions SelectV2Options DensifyOptions SegmentSumOptions
    BatchMatMulOptions CumsumOptions CallOnceOptions BroadcastToOptions Rfft2dOptions
    Conv3DOptions HashtableOptions HashtableFindOptions HashtableImportOptions
    HashtableSizeOptions VarHandleOptions ReadVariableOptions AssignVariableOptions RandomOptions
    BucketizeOptions GeluOptions DynamicUpdateSliceOptions UnsortedSegmentProdOptions
    UnsortedSegmentMaxOptions UnsortedSegmentMinOptions UnsortedSegmentSumOptions ATan2Options
    SignOptions BitcastOptions BitwiseXorOptions RightShiftOptions
    """),
    ),
    "BuiltinOptions2": (
        "",
        *_words("""
    StablehloConcatenateOptions StablehloBroadcastInDimOptions StablehloSliceOptions
    StablehloConvolutionOptions StablehloCustomCallOptions StablehloReduceOptions
    StablehloScatterOptions StablehloCompareOptions StablehloDynamicSliceOptions
    StablehloPadOptions StablehloIotaOptions StablehloDotGeneralOptions
    StablehloReduceWindowOptions StablehloSortOptions StablehloWhileOptions StablehloGatherOptions
    StablehloTransposeOptions DilateOptions StablehloRngBitGeneratorOptions ReduceWindowOptions
    StableHLOCompositeOptions StablehloShiftLeftOptions StablehloCaseOptions
    """),
    ),
}
"""Union -> table name by type code; "" is NONE."""

OPERATORS: Final = tuple(
    OpKind(name)
    for name in _words("""
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
    EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
    LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1
    RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM
    CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
    SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM
    CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE
    SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
    ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK
    REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
    LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
    WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
    NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
    BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG
    REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
    CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS
    RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE
    RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
    UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD
    STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP
    STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE
    STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE
    STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE
    STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT
    STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT
    STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA
    STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER
    STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE
    STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
    """)
)
"""BuiltinOperator: kind by code."""

TENSOR_TYPES: Final = (
    DataType.FLOAT32,
    DataType.FLOAT16,
    DataType.INT32,
    DataType.UINT8,
    DataType.INT64,
    DataType.STRING,
    DataType.BOOL,
    DataType.INT16,
    DataType.COMPLEX64,
    DataType.INT8,
    DataType.FLOAT64,
    DataType.COMPLEX128,
    DataType.UINT64,
    DataType.RESOURCE,
    DataType.VARIANT,
    DataType.UINT32,
    DataType.UINT16,
    DataType.INT4,
    DataType.BFLOAT16,
)
"""TensorType: element type by code (19 INT2 and 20 UINT4 are newer and read as UNKNOWN)."""


class Field(msgspec.Struct, frozen=True):
    """A slot of a table. ``slot`` is its index in the vtable.

    ``base`` is a scalar type, "str", a table name or a union name; ``code`` the struct code of
    a scalar (or of a vector's elements), "" otherwise. ``inline_bytes`` is what the field takes
    in its table, ``element_bytes`` what it (or one element of a vector) takes where it lies.
    """

    name: str
    slot: int
    base: str
    code: str
    inline_bytes: int
    element_bytes: int
    is_vector: bool
    is_union: bool
    default: int | float


class TableSpec(msgspec.Struct, frozen=True):
    """A table of the schema: its live fields by name, in slot order."""

    name: str
    fields: dict[str, Field]
    slots: tuple[Field | None, ...]


def _field(text: str, slot: int) -> Field:
    name, _, kind = text.partition(" ")
    kind, _, default = kind.partition("=")
    is_vector, is_union = kind.startswith("["), kind.startswith("@")
    base = kind.strip("[]@")
    code = SCALARS.get(base, "")
    element_bytes = struct.calcsize(f"<{code}") if code else 4
    return Field(
        name=name,
        slot=slot + is_union,
        base=base,
        code=code,
        inline_bytes=element_bytes if not is_vector else 4,
        element_bytes=element_bytes,
        is_vector=is_vector,
        is_union=is_union,
        default=int(default or 0),
    )


def _table(line: str) -> TableSpec:
    name, _, body = line.partition(": ")
    slots: list[Field | None] = []
    for text in body.split(", "):
        field = None if text == "_" else _field(text, len(slots))
        if field is not None and field.is_union:
            slots.append(None)
        slots.append(field)
    return TableSpec(name, {f.name: f for f in slots if f is not None}, tuple(slots))


def _tables() -> dict[str, TableSpec]:
    tables = [_table(line) for line in _TABLES.strip().splitlines()]
    found = {spec.name: spec for spec in tables}
    for members in UNIONS.values():
        for name in members[1:]:
            found.setdefault(name, TableSpec(name, {}, ()))
    return found


TABLES: Final = _tables()
"""Every table by name; a table without fields of interest has none."""
