/**
 * Where random schedules begin: at `TEST_SEED`; in the long run at a fresh seed; else at the same one each time, since a change should
 * not fail for a rare case that it did not bring.
 */
import { randomInt } from 'node:crypto'
import { long } from './needs.ts'

const SAME = 1

/** From 0 to 2^32 - 1. */
export function firstSeed(): number {
  return Number(process.env.TEST_SEED ?? (long ? randomInt(2 ** 32) : SAME))
}
