//! NaN, infinities, and numbers at the ends of the range.

use meshwright_backend::{Comparison, DType, Expr, Node, UnaryFunction};

use super::formula::apply;
use super::{backward, evaluate};
use crate::{Target, assert_close};
use Node::*;
use UnaryFunction::*;

fn function(function: UnaryFunction) -> Expr {
    Expr { nodes: vec![Leaf(0), Apply(function, 0)] }
}

/// Returns the gradient of an expression of one leaf, for a gradient of the result that is `grad` everywhere.
fn slopes(target: &Target, expr: &Expr, x: &[f32], grad: f32) -> Vec<f32> {
    let (leaf, grad) = (target.put(x), target.put(&vec![grad; x.len()]));
    let grads = backward(target, expr, &[leaf], &[true], &grad, None);
    grads[0].as_ref().expect("a gradient").numbers()
}

fn result(target: &Target, expr: &Expr, x: &[f32]) -> Vec<f32> {
    evaluate(target, expr, &[target.put(x)], x.len()).numbers()
}

/// NaN passes through every function, and changes no other element.
pub fn nan(target: &Target) {
    let functions = UnaryFunction::ALL.iter().map(|function| Apply(*function, 0));
    let others = [
        Scale(0, 0.0),
        Offset(0, 1.0),
        Clamp(0, 0.0, 2.0),
        Div(0, 0),
        Max(0, 0),
        Min(0, 0),
        Select(0, 0, 0),
        Pow(0, 1.5),
    ];
    for node in functions.chain(others) {
        let expr = Expr { nodes: vec![Leaf(0), node] };
        let is_nan = result(target, &expr, &[1.0, f32::NAN, 1.0])
            .iter()
            .map(|x| x.is_nan())
            .collect::<Vec<_>>();
        assert_eq!(is_nan, [false, true, false], "{:?}", expr.nodes);
    }
}

/// Functions of zeros, infinities and large numbers follow their formulas.
pub fn special_values(target: &Target) {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -100.0, 100.0, -1e30, 1e30, 0.0, -0.0];
    for function in UnaryFunction::ALL {
        let expected = x.map(|x| apply(*function, x.into()) as f32);
        let got = result(target, &self::function(*function), &x);
        assert_close(&format!("{function:?}"), &got, &expected, 4.0 * f32::EPSILON, 1e-38);
    }
}

/// Gradients of functions of large numbers are their limits.
pub fn large_numbers(target: &Target) {
    let large = [-f32::MAX, -1e30, -1e20, 1e20, 1e30, f32::MAX];
    for function in UnaryFunction::ALL {
        let limit = |x: f32| match function {
            Silu | Gelu | GeluTanh | Relu | Softplus => f32::from(x > 0.0),
            Tanh | Sigmoid => 0.0,
            Exp if x < 0.0 => 0.0,
            Exp => f32::INFINITY,
            Log => 1.0 / x,
            Sqrt | Rsqrt if x < 0.0 => f32::NAN,
            Sqrt => (0.5 / f64::from(x).sqrt()) as f32,
            Rsqrt => (-0.5 * f64::from(x).powf(-1.5)) as f32,
            Recip => (-f64::from(x).powi(-2)) as f32,
            Square => 2.0 * x,
            Abs => x.signum(),
            Sin => f64::from(x).cos() as f32,
            Cos => -f64::from(x).sin() as f32,
        };
        let got = slopes(target, &self::function(*function), &large, 1.0);
        let (tolerance, floor) = (4.0 * f32::EPSILON, f32::MIN_POSITIVE);
        assert_close(&format!("{function:?}"), &got, &large.map(limit), tolerance, floor);
    }
}

/// Clamping passes the gradients of numbers in the range and at its ends.
pub fn clamped_gradients(target: &Target) {
    let expr = Expr { nodes: vec![Leaf(0), Clamp(0, -1.0, 2.0)] };
    let x = [-3.0, -1.0, -0.5, 2.0, 2.5, f32::INFINITY];
    assert_eq!(result(target, &expr, &x), [-1.0, -1.0, -0.5, 2.0, 2.0, 2.0]);
    assert_eq!(slopes(target, &expr, &x, 3.0), [0.0, 3.0, 3.0, 3.0, 0.0, 0.0]);
}

/// Numbers whose reciprocals are not normal divide as others do.
pub fn quotients(target: &Target) {
    let x = [0.0, -0.0, 1e-39, -3e-39, 2e38, 1e38, 0.3, f32::INFINITY];
    for number in [1e-40, -1e-45, 2e-39, 1e38, f32::MAX] {
        for by_number in [true, false] {
            let quotient = if by_number { Div(0, 1) } else { Div(1, 0) };
            let expr = Expr { nodes: vec![Leaf(0), Constant(number), quotient] };
            let exact = x.map(|x| if by_number { x / number } else { number / x });
            let out = evaluate(target, &expr, &[target.floats(DType::F32, &x)], x.len());
            let what = format!("{by_number}, {number}");
            target.check_exactly(&what, &out, &exact);
            let slopes = slopes(target, &expr, &x, 1e-3);
            if by_number {
                assert_close(&what, &slopes, &[1e-3 / number; 8], 0.0, 0.0);
            }
        }
    }
}

/// The larger and the smaller of two numbers: NaN if one of them is, and half of the gradient each if they are equal.
pub fn larger_and_smaller(target: &Target) {
    let [a, b] = [[1.0, 2.0, 3.0, -0.0, f32::NAN, 1.0], [2.0, 1.0, 3.0, 0.0, 1.0, f32::NAN]];
    for (node, result, of_a) in [
        (Max(0, 1), [2.0, 2.0, 3.0, 0.0], [0.0, 4.0, 2.0, 2.0]),
        (Min(0, 1), [1.0, 1.0, 3.0, 0.0], [4.0, 0.0, 2.0, 2.0]),
    ] {
        let expr = Expr { nodes: vec![Leaf(0), Leaf(1), node] };
        let leaves = [target.put(&a), target.put(&b)];
        let got = evaluate(target, &expr, &leaves, 6).numbers();
        assert_eq!(got[..4], result, "{:?}", expr.nodes);
        assert!(got[4..].iter().all(|x| x.is_nan()), "{:?}: {got:?}", expr.nodes);
        let grads = backward(target, &expr, &leaves, &[true; 2], &target.put(&[4.0f32; 6]), None);
        let grad = |leaf: usize| grads[leaf].as_ref().expect("a gradient").numbers();
        assert_eq!(grad(0)[..4], of_a, "{:?}", expr.nodes);
        assert_eq!(grad(1)[..4], of_a.map(|g| 4.0 - g), "{:?}", expr.nodes);
    }
}

/// Powers follow IEEE also out of their domain, and the power 0 has no gradient.
pub fn powers(target: &Target) {
    let x = [-2.0, -0.0, 0.0, 0.25, 1.0, 3.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    for exponent in [-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 2.5] {
        let expr = Expr { nodes: vec![Leaf(0), Pow(0, exponent)] };
        let expected = x.map(|x| f64::from(x).powf(f64::from(exponent)) as f32);
        let what = format!("to the power {exponent}");
        let tolerance = 8.0 * f32::EPSILON;
        assert_close(&what, &result(target, &expr, &x), &expected, tolerance, 1e-38);
        let slope = |x: f32| {
            let exponent = f64::from(exponent);
            let slope = exponent * f64::from(x).powf(exponent - 1.0);
            if exponent == 0.0 { 0.0 } else { slope as f32 }
        };
        let got = slopes(target, &expr, &x, 1.0);
        assert_close(&format!("slope {what}"), &got, &x.map(slope), tolerance, 1e-38);
    }
}

/// Comparisons hold for exactly the pairs that IEEE says.
pub fn comparisons(target: &Target) {
    let numbers = [f32::NEG_INFINITY, -1.0, -0.0, 0.0, 2.0, f32::INFINITY, f32::NAN];
    let pairs = numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b)));
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.unzip();
    for comparison in Comparison::ALL {
        let expr = Expr { nodes: vec![Leaf(0), Leaf(1), Compare(comparison, 0, 1)] };
        let leaves = [target.put(&a), target.put(&b)];
        let holds = |(a, b): (&f32, &f32)| match comparison {
            Comparison::Gt => a > b,
            Comparison::Ge => a >= b,
            Comparison::Lt => a < b,
            Comparison::Le => a <= b,
            Comparison::Eq => a == b,
            Comparison::Ne => a != b,
        };
        let expected: Vec<f32> =
            a.iter().zip(&b).map(|pair| f32::from(u8::from(holds(pair)))).collect();
        let got = evaluate(target, &expr, &leaves, a.len());
        target.check_exactly(&format!("{comparison:?}"), &got, &expected);
        let grads = backward(target, &expr, &leaves, &[true; 2], &leaves[0], None);
        for grad in grads.iter().flatten() {
            target.check_exactly("no gradient", grad, &vec![0.0; a.len()]);
        }
    }
}

/// The gradient of an operand that a selection leaves out is 0, also behind an infinite derivative.
pub fn selections(target: &Target) {
    // The square root of x if x > 0, the logarithm of 1 - x elsewhere.
    let nodes = vec![
        Leaf(0),
        Constant(0.0),
        Compare(Comparison::Gt, 0, 1),
        Apply(Sqrt, 0),
        Scale(0, -1.0),
        Offset(4, 1.0),
        Apply(Log, 5),
        Select(2, 3, 6),
    ];
    let expr = Expr { nodes };
    let x = [-3.0, 0.0, 0.25, 1.0, 4.0];
    let expected = x.map(|x: f32| if x > 0.0 { x.sqrt() } else { (1.0 - x).ln() });
    assert_close("selected", &result(target, &expr, &x), &expected, 1e-6, 0.0);
    let expected = x.map(|x: f32| if x > 0.0 { 0.5 / x.sqrt() } else { -1.0 / (1.0 - x) });
    assert_close("slopes", &slopes(target, &expr, &x, 1.0), &expected, 1e-6, 0.0);
}
