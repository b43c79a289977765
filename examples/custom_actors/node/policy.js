// The documented MLP, evaluated from the tensors that the parameter server sends.
'use strict';

// Puts the parts of one version together: { name: { shape, data: Float32Array } }.
class WeightsReader {
  constructor(header) {
    this.version = Number(header.version);
    this.specs = header.tensors;
    this.bytes = header.tensors.map((spec) => Buffer.alloc(4 * spec.shape.reduce((a, n) => a * Number(n), 1)));
  }

  add(parts) {
    for (const part of parts) part.data.copy(this.bytes[part.tensorIndex], Number(part.offsetBytes));
  }

  finish() {
    const tensors = {};
    this.specs.forEach((spec, i) => {
      const { buffer, byteOffset, length } = this.bytes[i];
      tensors[spec.name] = { shape: spec.shape.map(Number), data: new Float32Array(buffer.slice(byteOffset, byteOffset + length)) };
    });
    return { version: this.version, tensors };
  }
}

// weight [out, in], bias [out]
function linear(tensors, name, input) {
  const { shape: [outputs, inputs], data } = tensors[`${name}.weight`];
  return Float32Array.from(tensors[`${name}.bias`].data, (bias, row) => {
    let sum = bias;
    for (let i = 0; i < inputs; i += 1) sum += data[row * inputs + i] * input[i];
    return sum;
  });
}

// trunk.0, trunk.1, ..., a ReLU after each; then `q`, or the dueling heads: Q = V + A - mean A.
function qValues(tensors, observation) {
  let hidden = observation;
  for (let layer = 0; `trunk.${layer}.weight` in tensors; layer += 1) {
    hidden = linear(tensors, `trunk.${layer}`, hidden).map((x) => Math.max(0, x));
  }
  if ('q.weight' in tensors) return linear(tensors, 'q', hidden);
  const advantage = linear(tensors, 'advantage', hidden);
  const [value] = linear(tensors, 'value', hidden);
  const mean = advantage.reduce((a, b) => a + b) / advantage.length;
  return advantage.map((a) => value + a - mean);
}

module.exports = { WeightsReader, qValues };
