//! Options of language-model heads.

use bytemuck::{Pod, Zeroable};

use crate::CudaBackend;
use crate::gpu::args;
use crate::kernels::HEAD;
use meshwright_backend::ops::head::{FinishLogitsArgs, SmoothedGradArgs};
use meshwright_backend::{DType, HeadOps, View};

use super::launch::{address, aligned, check_operand, covering, float_name, vector_width};

impl HeadOps for CudaBackend {
    fn finish_logits(&self, args: FinishLogitsArgs) {
        let gpu = self.gpu();
        let FinishLogitsArgs { cols, logits, bias, soft_cap } = args;
        let logits = logits.as_view();
        let (rows, vector, suffix) = rows_and_vector(cols, logits);
        if let Some(bias) = bias {
            check_operand("bias", bias, DType::F32, cols);
        }
        let name = format!("finish_logits_{}{suffix}", float_name(logits.dtype()));
        let (bias, cap) = (bias.map_or(0, address), soft_cap.unwrap_or(0.0));
        // SAFETY: the logits have these sizes, and are exclusive; the bias has an element for each column.
        unsafe {
            gpu.launch(
                (&HEAD, &name),
                covering(gpu, logits.len() as u64 / vector),
                args![address(logits), rows, cols as u64, bias, cap],
            )
        };
    }

    fn smoothed_grad(&self, args: SmoothedGradArgs) {
        let gpu = self.gpu();
        let logits = args.logits.as_view();
        let (rows, vector, suffix) = rows_and_vector(args.cols, logits);
        for statistic in [args.max, args.sum_exp, args.row_scale] {
            check_operand("a statistic", statistic, DType::F32, rows as usize);
        }
        check_operand("targets", args.targets, DType::U32, rows as usize);
        let name = format!("smoothed_grad_{}{suffix}", float_name(logits.dtype()));
        let of = Rows {
            max: address(args.max),
            sum_exp: address(args.sum_exp),
            row_scale: address(args.row_scale),
            targets: address(args.targets),
            first_col: args.first_col as u64,
            vocab: args.vocab as f32,
            label_smoothing: args.label_smoothing,
            z_loss: args.z_loss,
            inverse_cap: args.soft_cap.map_or(0.0, |cap| 1.0 / cap),
        };
        // SAFETY: every operand has an element for each row, and the logits are exclusive.
        unsafe {
            gpu.launch(
                (&HEAD, &name),
                covering(gpu, logits.len() as u64 / vector),
                args![address(logits), rows, args.cols as u64, of],
            )
        };
    }
}

/// Returns the number of rows, the elements per access of a thread, and the suffix of such kernels.
fn rows_and_vector(cols: usize, logits: View) -> (u64, u64, &'static str) {
    let len = logits.len();
    assert!(cols > 0 && len.is_multiple_of(cols), "{len} elements are whole rows of {cols}");
    let vector = vector_width(logits.dtype());
    let fits = cols.is_multiple_of(vector) && aligned(&[logits], vector);
    let (vector, suffix) = if fits { (vector as u64, "_vectors") } else { (1, "") };
    ((len / cols) as u64, vector, suffix)
}

/// `Rows` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Rows {
    max: u64,
    sum_exp: u64,
    row_scale: u64,
    targets: u64,
    first_col: u64,
    vocab: f32,
    label_smoothing: f32,
    z_loss: f32,
    inverse_cap: f32,
}
