// @module-tag slow
import { testRows } from './row.ts'

testRows('cut', 'black-hole', 'redis')
