// CartPole in JavaScript, the same as Gymnasium's CartPole-v1: Barto, Sutton and Anderson 1983.
'use strict';

const GRAVITY = 9.8, POLE_MASS = 0.1, TOTAL_MASS = 1.1, HALF_LENGTH = 0.5, FORCE = 10, SECONDS = 0.02;
const X_LIMIT = 2.4, ANGLE_LIMIT = (12 * 2 * Math.PI) / 360, MAX_STEPS = 500;

class CartPole {
  constructor() { this.reset(); }

  // Begins an episode; returns the observation: position, velocity, angle, angular velocity.
  reset() {
    this.state = Float32Array.from({ length: 4 }, () => Math.random() * 0.1 - 0.05);
    this.steps = 0;
    return this.state;
  }

  // Pushes left (0) or right (1); every step earns 1.
  step(action) {
    const [x, velocity, angle, spin] = this.state;
    const cos = Math.cos(angle), sin = Math.sin(angle);
    const push = ((action === 1 ? FORCE : -FORCE) + POLE_MASS * HALF_LENGTH * spin * spin * sin) / TOTAL_MASS;
    const spinChange = (GRAVITY * sin - cos * push)
      / (HALF_LENGTH * (4 / 3 - (POLE_MASS * cos * cos) / TOTAL_MASS));
    const velocityChange = push - (POLE_MASS * HALF_LENGTH * spinChange * cos) / TOTAL_MASS;
    this.state = Float32Array.of(
      x + SECONDS * velocity, velocity + SECONDS * velocityChange,
      angle + SECONDS * spin, spin + SECONDS * spinChange);
    this.steps += 1;
    const terminated = Math.abs(this.state[0]) > X_LIMIT || Math.abs(this.state[2]) > ANGLE_LIMIT;
    return { observation: this.state, reward: 1, terminated, truncated: !terminated && this.steps >= MAX_STEPS };
  }
}

module.exports = { CartPole };
