// @module-tag slow
import { testRows } from './row.ts'

testRows('token', 'keys', 'certificate', 'routes')
