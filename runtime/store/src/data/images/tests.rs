//! Images compared with what Pillow and `transformers` make of them, by the fixtures of
//! `tests/reference`.

use std::fs;
use std::path::PathBuf;

use safetensors::SafeTensors;
use serde_json::{Map, Value, json};

use super::*;
use crate::data::file_bytes;
use crate::data::{Example, Field};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference/fixtures/images")
}

fn read(name: &str) -> Vec<u8> {
    fs::read(folder().join(name)).unwrap()
}

fn decoded(name: &str) -> RgbImage {
    RgbImage::decode(&read(name)).unwrap_or_else(|reason| panic!("{name}: {reason}"))
}

fn keys(name: &str) -> Map<String, Value> {
    serde_json::from_slice(&read(name)).unwrap()
}

/// Returns the largest difference of two images.
fn difference(got: &[u8], expected: &[u8]) -> u8 {
    assert_eq!(got.len(), expected.len());
    got.iter().zip(expected).map(|(got, expected)| got.abs_diff(*expected)).max().unwrap_or(0)
}

#[test]
fn images_are_decoded_as_by_pillow() {
    let bytes = read("expected.safetensors");
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let mut checked = 0;
    for (name, tensor) in expected.tensors() {
        let Some(file) = name.strip_prefix("decoded.") else { continue };
        let image = decoded(file);
        assert_eq!([image.height(), image.width(), 3], tensor.shape(), "{file}");
        // Of JPEG, decoders round differently, and those of Pillow smooth colors that are stored in halves otherwise.
        let (most, mean) = match file {
            "halves.jpg" => (8, 1.0),
            file if file.ends_with(".jpg") => (2, 0.2),
            _ => (0, 0.0),
        };
        let sum: u64 =
            image.pixels().iter().zip(tensor.data()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        let off = sum as f64 / image.pixels().len() as f64;
        let difference = difference(image.pixels(), tensor.data());
        println!("{file}: off by {difference} at most, and by {off} on average");
        assert!(difference <= most && off <= mean, "{file}: off by {difference}, {off} on average");
        checked += 1;
    }
    assert_eq!(checked, 9);
}

#[test]
fn images_are_resized_as_by_pillow() {
    let bytes = read("expected.safetensors");
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let image = decoded("rgb.png");
    for (name, size) in keys("sizes.json") {
        let [width, height, filter] = [0, 1, 2].map(|at| size[at].as_u64().unwrap() as usize);
        let by = if filter == 3 { Resampling::Bicubic } else { Resampling::Bilinear };
        let resized = image.resized(width, height, by);
        let tensor = expected.tensor(&format!("resized.{name}")).unwrap();
        assert_eq!([resized.height(), resized.width(), 3], tensor.shape(), "{name}");
        let difference = difference(resized.pixels(), tensor.data());
        assert_eq!(difference, 0, "{name}");
    }
}

#[test]
fn numbers_are_those_of_transformers() {
    let bytes = read("expected.safetensors");
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let image = decoded("rgb.png");
    for name in ["square", "center"] {
        let steps = ImagePreprocessing::of_keys(&keys(&format!("{name}.json"))).unwrap();
        let tensor = expected.tensor(&format!("values.{name}")).unwrap();
        let view = steps.view(&image).unwrap();
        assert_eq!([3, view.height(), view.width()], tensor.shape(), "{name}");
        assert_eq!(steps.output_size(), Some((view.width(), view.height())));
        let mut values = vec![0.0; tensor.shape().iter().product()];
        steps.write(&view, &mut values);
        let words = tensor.data().as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word));
        let off = values.iter().zip(words).map(|(got, expected)| (got - expected).abs());
        let off = off.fold(0.0, f32::max);
        assert!(off < 1e-5, "{name}: off by {off}");
    }
}

#[test]
fn steps_that_are_not_implemented_are_refused_by_key() {
    let refused = |keys: Value| {
        ImagePreprocessing::of_keys(keys.as_object().unwrap()).map(|_| ()).unwrap_err()
    };
    for (keys, part) in [
        (json!({ "do_pad": true }), "do_pad is true; this step is not implemented"),
        (json!({ "do_resize": 3 }), "do_resize must be true or false, not 3"),
        (json!({ "resample": 1 }), "resample is 1; only 2 (bilinear) and 3 (bicubic)"),
        (json!({ "size": { "longest_edge": 9 } }), "size must have height and width, or shortest"),
        (json!({ "size": 0 }), "size must be a whole number of 1 to"),
        (json!({ "size": { "height": 9, "width": -1 } }), "size.width must be a whole number"),
        (json!({ "image_std": [1, 0, 1] }), "image_std has a 0"),
        (json!({ "image_mean": [1, 0] }), "image_mean must be 3 numbers"),
        (json!({ "rescale_factor": "x" }), "rescale_factor must be a number"),
    ] {
        let text = refused(keys);
        assert!(text.starts_with(part), "{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(ImagePreprocessing::of_folder(dir.path()), Ok(None));
    fs::write(dir.path().join("preprocessor_config.json"), "[]").unwrap();
    let text = ImagePreprocessing::of_folder(dir.path()).unwrap_err();
    assert!(text.contains("preprocessor_config.json: it is no JSON object"), "{text}");
}

#[test]
fn other_bytes_are_no_images() {
    let refused = |bytes: &[u8]| RgbImage::decode(bytes).map(|_| ()).unwrap_err();
    assert_eq!(refused(b""), "the image is empty");
    assert!(refused(b"GIF89a").contains("neither a JPEG nor a PNG file"));
    for name in ["rgb.png", "palette.png", "whole.jpg", "halves.jpg"] {
        let bytes = read(name);
        assert!(refused(&bytes[..20]).contains("image cannot be decoded: "), "{name}");
        for cut in [30, bytes.len() / 2] {
            // Some decoders fill up what is missing.
            drop(RgbImage::decode(&bytes[..cut]));
        }
        for at in (0..bytes.len()).step_by(11) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x55;
            drop(RgbImage::decode(&bytes));
        }
    }
    // A header that promises 4 billion pixels.
    let mut large = read("rgb.png");
    large[16..24].fill(0x7f);
    assert!(refused(&large).contains("cannot be decoded"));
}

#[test]
fn random_views_follow_from_their_key() {
    let image = decoded("rgb.png");
    let steps = ImagePreprocessing::of_size(8);
    let random = TrainingView { area: Some((0.1, 1.0)), mirrors: true };
    let views: Vec<RgbImage> = (0..40).map(|key| random.of(&image, &steps, key).unwrap()).collect();
    for (key, view) in views.iter().enumerate() {
        assert_eq!((view.width(), view.height()), (8, 8));
        assert_eq!(*view, random.of(&image, &steps, key as u64).unwrap());
        assert!(views[..key].iter().all(|other| other != view), "{key}");
    }
    let mirrors = TrainingView { area: None, mirrors: true };
    let plain = steps.view(&image).unwrap();
    let mirrored: Vec<bool> =
        (0..64).map(|key| mirrors.of(&image, &steps, key).unwrap() == plain.mirrored()).collect();
    let count = mirrored.iter().filter(|is_mirrored| **is_mirrored).count();
    assert!((16..48).contains(&count), "{count} of 64");
}

#[test]
fn images_are_bytes_or_files() {
    let of = |field: Field| Example::new([("image".to_owned(), field)]).in_folder(folder().into());
    let bytes = read("rgb.png");
    let object = |fields: &[(&str, Field)]| {
        let fields = fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone()));
        Field::Object(Example::new(fields))
    };
    let path = || Field::Text("rgb.png".into());
    for field in [
        Field::Bytes(bytes.clone()),
        path(),
        object(&[("bytes", Field::Bytes(bytes.clone())), ("path", Field::Text("x.png".into()))]),
        object(&[("bytes", Field::Null), ("path", path())]),
    ] {
        assert_eq!(file_bytes(&of(field), "image").unwrap().0, bytes);
    }
    for (field, part) in [
        (Field::Text("missing.png".into()), "missing.png: No such file"),
        (Field::Text(".".into()), "it is no file"),
        (
            Field::Integer(3),
            "`image` is a whole number, but has to be the bytes or the path of a file",
        ),
        (object(&[("url", path())]), "`image` has neither `bytes` nor a `path`"),
    ] {
        let example = of(field);
        let text = file_bytes(&example, "image").map(|_| ()).unwrap_err();
        assert!(text.contains(part), "{text}");
    }
}
